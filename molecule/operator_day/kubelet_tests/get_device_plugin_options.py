"""Lets GetDevicePluginOptions fail. The kubelet must reject a faulty plugin and keep ours. Ours must retry."""

from __future__ import annotations

import json

from cluster_api import until
from tested_node import RESOURCE, TestedNode

PYTHON = "/opt/node-devices/current/bin/python"
DOUBLE = f"PYTHONPATH=/usr/local/lib/kubelet_stand_in.whl {PYTHON} /usr/local/lib/faulty_plugin.py"
ARGUMENTS = "run --config /etc/node-device-plugin/config.yaml"
DROP_IN = "/etc/systemd/system/node-device-plugin.service.d/faults.conf"
FAULTS = f"""
mkdir -p {DROP_IN.rpartition("/")[0]}
cat >{DROP_IN}
systemctl daemon-reload
systemctl restart node-device-plugin
"""
INJECTED = "journalctl --unit node-device-plugin --output cat --no-pager | grep '^injected: ' | sort || true"
NO_FAULTS = f"""
rm -r {DROP_IN.rpartition("/")[0]}
systemctl daemon-reload
systemctl restart node-device-plugin
"""


def run(node: TestedNode) -> str:
    # Use a resource of no other plugin, and a resource of our plugin.
    for resource in ("kubelet.example/refused", RESOURCE):
        answer = json.loads(node.sh(f"{DOUBLE} options {resource}"))
        assert "failed to get device plugin options" in answer["said"], answer
        assert "as it was told" in answer["said"], answer
        assert answer["calls"] == ["GetDevicePluginOptions"], answer
    assert node.status("kubelet.example/refused") == ("none", "none")
    seen = node.run("beside", {RESOURCE: 2})
    assert set(seen.values()) == {"test0", "test1"}, seen
    # Run our plugin with faults: for each resource, the first two answers fail and the first stream ends.
    node.sh(FAULTS, f"[Service]\nExecStart=\nExecStart={PYTHON} /usr/local/lib/faults.py {ARGUMENTS}\n")
    wanted = ["injected: GetDevicePluginOptions"] * 6 + ["injected: ListAndWatch"] * 3
    until(lambda: node.sh(INJECTED).splitlines(), lambda lines: lines == wanted)
    for resource, count in ((RESOURCE, "2"), ("kubelet.example/spread", "2"), ("kubelet.example/near", "1")):
        node.offers(resource, count, count)
    node.sh(NO_FAULTS)
    node.offers(RESOURCE, "2", "2")
    assert node.restarts("beside") == 0, node.pod("beside")
    node.delete("beside")
    node.run("afterwards", {RESOURCE: 2})
    node.delete("afterwards")
    return f"the kubelet said: {answer['said']}"
