"""Checks that the Topology Manager uses the plugin's NUMA nodes. An artificial /sys shows two NUMA nodes."""

from __future__ import annotations

from tested_node import TestedNode, container

#: Files below /sys/devices/system/node, which cAdvisor reads. A NUMA node may have no CPU.
MADE = r"""
mkdir -p /opt/lab-numa
cd /opt/lab-numa
for node in 0 1; do
  mkdir -p node$node/hugepages
  [ ! -d /sys/devices/system/cpu/cpu$node ] || ln -sfn ../../cpu/cpu$node node$node/cpu$node
  echo "Node $node MemTotal: 4096000 kB" >node$node/meminfo
done
echo 10 20 >node0/distance
echo 20 10 >node1/distance
mount --bind /opt/lab-numa /sys/devices/system/node
printf 'topologyManagerPolicy: single-numa-node\n' >>/etc/kubernetes/lab/kubelet.yaml
"""


def run(node: TestedNode) -> str:
    node.restart_kubelet(MADE)
    node.offers("kubelet.example/near", "1", "1")
    node.offers("kubelet.example/spread", "2", "2")
    # The pod must get the device on the NUMA node of the other resource's only device.
    seen = node.run("aligned", {"kubelet.example/spread": 1, "kubelet.example/near": 1})
    assert seen == {"SPREAD_0": "spread1", "NEAR_0": "near1"}, seen
    # Admission must fail, because no NUMA node has two free devices.
    node.delete("aligned")
    node.create("unaligned", [container("main", {"kubelet.example/spread": 2})])
    status = node.phase("unaligned", "Failed")
    assert status["reason"] == "TopologyAffinityError", status
    node.delete("unaligned")
    return f"aligned with {seen}; two of two NUMA nodes: {status['message']}"
