#!/bin/sh
# A node's state, a line for each thing: every file, link and folder, and when the services started.
# Left out is what services write by themselves while they run, and what the lab put there for a stand-in kubelet.
set -eu
outside() {
  find / -xdev \( \
      -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log \
      -o -path /var/cache -o -path /var/lib/containerd -o -path /var/lib/kubelet -o -path /var/lib/systemd \
      -o -path /var/lib/dbus -o -path /root/.ansible -o -path /opt/lab-kubelet -o -name __pycache__ \
    \) -prune -o "$@"
}
{
  outside -type l -printf '%p -> %l\n'
  outside -type d -printf '%p/ %m %u:%g\n'
  outside -type f -printf '%p %m %u:%g %s bytes\n'
  # Hashes where something of ours can be; the distribution's files are told by their sizes.
  outside -type f \( -path '/etc/*' -o -path '/opt/*' -o -path '/usr/local/*' -o -path '/var/lib/node-devices/*' \) \
    -exec sha256sum {} +
} | LC_ALL=C sort
for unit in containerd kubelet node-device-plugin; do
  echo "started: $unit $(systemctl show -P ExecMainStartTimestampMonotonic $unit)"
done
