"""Checks that a sidecar gets the init container's device, and that the main container gets another device."""

from __future__ import annotations

from tested_node import RESOURCE, STAYS, TestedNode, container

ENDS = STAYS.partition("; trap")[0]


def run(node: TestedNode) -> str:
    one = {RESOURCE: 1}
    init = [container("init", one, ENDS), container("sidecar", one, restartPolicy="Always")]
    node.create("sharing", [container("main", one)], initContainers=init)
    node.phase("sharing", "Running")
    seen = {name: node.variables("sharing", name)["TEST_0"] for name in ("init", "sidecar", "main")}
    assert seen["init"] == seen["sidecar"] != seen["main"], seen
    held = node.held()
    # An init container that has ended holds nothing.
    assert held == {"sharing/sidecar": [seen["sidecar"]], "sharing/main": [seen["main"]]}, held
    node.delete("sharing")
    return f"{seen}"
