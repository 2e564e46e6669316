"""Ends a plugin, and fails another plugin's stream. Allocatable must be 0 immediately, capacity after five minutes.

Call `begin` after the last restart of the kubelet, because a restart begins the five minutes again. `end` waits.
"""

from __future__ import annotations

import json

from get_device_plugin_options import DOUBLE
from tested_node import RESOURCE, TestedNode

#: The kubelet's endpointStopGracePeriod and the time for the node object's update, in seconds.
TIMEOUT = 360
AT_ONCE, LATER = "kubelet.example/fails-at-once", "kubelet.example/fails-later"
SERVE = f"""
rm -f /run/faulty_plugin.*
systemd-run --quiet --unit=faulty-plugin --collect --property=StandardOutput=truncate:/run/faulty_plugin.out \
  sh -c '{DOUBLE} streams {AT_ONCE} {LATER}'
for look in $(seq 300); do
  [ ! -e /run/faulty_plugin.begun ] || exit 0
  sleep 0.1
done
exit 1
"""
END = """
touch /run/faulty_plugin.end
while systemctl is-active --quiet faulty-plugin; do sleep 0.1; done
cat /run/faulty_plugin.out
"""


def begin(node: TestedNode) -> str:
    node.sh(SERVE)
    node.offers(AT_ONCE, "0", "0")
    node.offers(LATER, "2", "2")
    node.sh("touch /run/faulty_plugin.fail")
    node.offers(LATER, "2", "0")
    node.sh("systemctl stop node-device-plugin")
    node.offers(RESOURCE, "2", "0")
    return "allocatable 0 at once"


def end(node: TestedNode) -> str:
    node.offers(LATER, "0", "0", TIMEOUT)
    node.offers(RESOURCE, "0", "0", TIMEOUT)
    assert node.status(AT_ONCE) == ("0", "0")
    # The kubelet must not have retried the call.
    calls = json.loads(node.sh(END))
    assert calls == {resource: ["GetDevicePluginOptions", "ListAndWatch"] for resource in (AT_ONCE, LATER)}, calls
    return "capacity 0, and no further call to either plugin whose stream failed"
