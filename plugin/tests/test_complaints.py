"""Complaints about other plugins that no test of one module answers."""

import re
from pathlib import Path

from node_device_plugin.declaration import cdi, parse_resources

UNIT = Path(__file__).parents[2] / "roles/device_plugin/templates/node-device-plugin.service.j2"


def test_a_pod_that_is_not_root_can_open_the_device() -> None:
    """Complaint 8: uid, gid and mode of the node in the container, and the groups of its process, are CDI's to set."""
    node = {"path": "/dev/tty", "uid": 1000, "gid": 20, "mode": "0660"}
    device = {"id": "tty", "nodes": [node], "container_edits": {"additional_gids": [20]}}
    (resource,) = parse_resources([{"name": "example.com/serial", "devices": [device]}])
    spec = cdi.render_spec(resource)
    assert spec is not None
    (rendered,) = spec["devices"]
    (made,) = rendered["containerEdits"]["deviceNodes"]
    assert {key: made[key] for key in ("uid", "gid", "fileMode")} == {"uid": 1000, "gid": 20, "fileMode": 0o660}
    assert rendered["containerEdits"]["additionalGids"] == [20]


def test_the_service_needs_no_privileges() -> None:
    """Complaint 9: is privileged needed? Its service has no capability, gains none, and writes where it must alone.

    molecule/default holds the unit's exposure to 2.0.
    """
    lines = UNIT.read_text().splitlines()
    assert "CapabilityBoundingSet=" in lines
    assert "NoNewPrivileges=yes" in lines
    assert "ProtectSystem=strict" in lines
    assert not [line for line in lines if line.startswith("AmbientCapabilities")]


def test_every_complaint_has_a_test_that_names_it() -> None:
    """There are thirteen of them; a test's docstring names the one that it answers, or two."""
    named = set()
    for file in Path(__file__).parent.rglob("test_*.py"):
        for numbers in re.findall(r'"""Complaints? (\d+(?: and \d+)?)', file.read_text()):
            named.update(map(int, numbers.split(" and ")))
    assert named == set(range(1, 14))
