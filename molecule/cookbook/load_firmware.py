"""load_firmware.py NODE: while a pod holds the Coral stick, the stick goes and comes back with other USB ids.

So it does when a program loads its firmware. The pod must keep the stick by the same id, and its container must get the
new device node when it restarts. Ends with 1 and a line for each difference.
"""

from __future__ import annotations

import json
import sys
import uuid

from run_recipes import END, Run, on_node, recipes

ID = "usb-0000:00:14.0-9"
BEFORE, AFTER = "/dev/bus/usb/001/030", "/dev/bus/usb/001/032"
#: Starts the pod, takes the stick away, gives it back, and restarts the container. Prints what its containers printed.
STEPS = r"""
set -eu
until_it_is() {
  for look in $(seq 120); do
    node-device-plugin status | grep -q "devices.example.com/coral *%(id)s *$1 *$2" && return
    sleep 0.5
  done
  echo "after 60 s, the stick is not $1 $2:"; node-device-plugin status; exit 1
}
until_it_ran() {
  for look in $(seq 240); do
    grep -qs ' F end$' /var/log/pods/default_%(pod)s-*/main/$1.log && return
    sleep 0.5
  done
  echo "after 120 s, the container has not printed what it sees in its start $1"; exit 1
}
until_it_is healthy ''
cat >/etc/kubernetes/manifests/%(pod)s.json
until_it_ran 0
port=$(readlink -f /sys/bus/usb/devices/1-9)
mv /sys/bus/usb/devices/1-9 /run/1-9
rm %(before)s
until_it_is unhealthy default/%(pod)s
mknod %(after)s c 1 7
chmod 660 %(after)s
echo 18d1 >$port/idVendor
echo 9302 >$port/idProduct
echo 32 >$port/devnum
echo DEVNAME=bus/usb/001/032 >$port/uevent
mv /run/1-9 /sys/bus/usb/devices/1-9
# An uevent or the sweep tells of this where nothing changes in /dev.
touch %(after)s.new && rm %(after)s.new
until_it_is healthy default/%(pod)s
pkill -x -f 'sleep 1000'
until_it_ran 1
grep '' /var/log/pods/default_%(pod)s-*/main/*.log
"""


def main(node: str) -> int:
    (recipe,) = (each for each in recipes() if each.name == "coral-usb")
    name = f"firmware-{uuid.uuid4().hex[:6]}"
    manifest = json.dumps(Run(recipe, 0).manifest(name)).encode()
    printed = on_node(node, STEPS % {"id": ID, "pod": name, "before": BEFORE, "after": AFTER}, manifest)
    on_node(node, END)
    problems = []
    for start, path in ((0, BEFORE), (1, AFTER)):
        seen = [line.split()[4] for line in printed.splitlines() if f"/{start}.log:" in line and " F device " in line]
        if [each for each in seen if each.startswith("/dev/bus/usb/")] != [path]:
            problems.append(f"in its start {start}, the container sees {seen} instead of {path}")
    print("\n".join(problems) or f"{ID} was {BEFORE} and is {AFTER}, for the same pod")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
