#!/bin/sh
# A node's state, a line for each thing: every file, link and folder, the runtime's effective configuration, units, users,
# and when the services started.
# Left out is what services write by themselves while they run, and what the lab put there for a stand-in kubelet.
#   state.sh remember [NAME]         keeps it on the node, as NAME or `state`, and as `first_state` where there is none yet
#   state.sh compare NAME WITHOUT    prints what came (>) and went (<) since, lines that begin so apart, and fails if any
set -eu
kept=/var/tmp/lab-states
outside() {
  find / -xdev \( \
      -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log \
      -o -path /var/cache -o -path /var/backups -o -path /var/lib/containerd -o -path /var/lib/kubelet -o -path /var/lib/systemd \
      -o -path /var/lib/dbus -o -path /root/.ansible -o -path /opt/lab-kubelet -o -name __pycache__ \
    \) -prune -o "$@"
}
# A file system of its own, so not in the above. What others keep there comes and goes; folders of ours do not belong to them.
below_run() {
  find /run -xdev -mindepth 1 \( \
      -path /run/systemd -o -path /run/containerd -o -path /run/udev -o -path /run/lock -o -path /run/log \
      -o -path /run/user -o -path /run/netns -o -path /run/mount -o -path '/run/*.pid' -o -path /run/utmp \
    \) -prune -o -printf '%p (%y) %m %u:%g\n'
}
attributes() {
  python3 -c '
import os, sys
for path in filter(None, sys.stdin.buffer.read().split(b"\0")):
    for name in os.listxattr(path):
        print("%s has %s %s" % (os.fsdecode(path), name, os.getxattr(path, name).hex()))'
}
state() {
  {
    outside -type l -printf '%p -> %l\n'
    outside -type d -printf '%p/ %m %u:%g\n'
    outside -type f -printf '%p %m %u:%g %s bytes\n'
    # Hashes where something of ours can be; the distribution's files are compared by size.
    outside -type f \( -path '/etc/*' -o -path '/opt/*' -o -path '/usr/local/*' -o -path '/var/lib/node-devices/*' \) \
      -exec sha256sum {} +
    outside \( -type f -o -type d \) -print0 | attributes
    below_run
  } | LC_ALL=C sort
  containerd config dump 2>/dev/null | sed 's/^/containerd: /'
  systemctl list-unit-files --full --no-legend --no-pager | awk '$2 != "transient" { print "unit file: " $1, $2 }'
  systemctl list-units --all --full --plain --no-legend --no-pager 'node-device*' | awk '{ print "unit: " $1, $2, $3 }'
  getent passwd | sed 's/^/user: /'
  getent group | sed 's/^/group: /'
  for unit in containerd kubelet node-device-plugin; do
    echo "started: $unit $(systemctl show -P ExecMainStartTimestampMonotonic $unit)"
  done
}
mkdir -p $kept
case $1 in
  remember)
    state >"$kept/${2:-state}"
    [ -e $kept/first_state ] || cp $kept/state $kept/first_state
    ;;
  compare)
    [ -e "$kept/$2" ]
    state >$kept/now
    for one in "$2" now; do
      grep -vE "^($3)" "$kept/$one" >"$kept/compared.$one"
    done
    ! diff "$kept/compared.$2" $kept/compared.now | grep '^[<>]'
    ;;
esac
