"""What the node objects show, and what the plugins are."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.filter.status_table import status_table


def test_a_row_for_each_resource_and_a_reason_for_each_host_without():
    row = {"resource": "a.io/x", "declared": "4", "capacity": "0", "allocatable": "-", "state": "reset"}
    hostvars = {
        "worker1": {"extended_resources_result": {"failed": False, "resources": [row, {**row, "resource": "b.io/yy"}]}},
        "w2": {"extended_resources_result": {"failed": True, "msg": "w2: the cluster has no node w2\nmore"}},
        "w3": {"device_plugin_report": {"runs_as": "service", "configuration": "0123456789ab", "state": "as declared"}},
        "w4": {"extended_resources_result": {"failed": False, "resources": []}},
    }
    assert status_table(list(hostvars), hostvars).splitlines() == [
        "NODE     RESOURCE  DECLARED  CAPACITY  ALLOCATABLE  STATE",
        "worker1  a.io/x    4         0         -            reset",
        "worker1  b.io/yy   4         0         -            reset",
        "w2       -         -         -         -            the cluster has no node w2",
        "w3       -         -         -         -            not reached",
        "",
        "NODE     PLUGIN   CONFIGURATION  STATE",
        "worker1  -        -              not reached",
        "w2       -        -              not reached",
        "w3       service  0123456789ab   as declared",
        "w4       -        -              not reached",
    ]
