"""The command ``capacities restore`` on a node, which may have the oldest Python: what it says where it cannot.

What it restores is held to API servers in tests/kubernetes.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cli.main import main
from node_device_plugin.cluster import api
from node_device_plugin.cluster.api import Conflict
from node_device_plugin.cluster.extended_resources import ANNOTATION, LEFT_BEHIND, Memory, Wanted, plan, rows
from node_device_plugin.kubelet import restore


def restored(path: Path) -> int:
    return main(["capacities", "restore", "--config", str(path)])


def test_no_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert restored(tmp_path / "none.json") == 1
    assert capsys.readouterr().err == "node-device-plugin: %s/none.json: No such file or directory\n" % tmp_path


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """The file that role extended_resources writes; no API server answers at its address."""
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
    }
    (tmp_path / "kubelet.conf").write_text(json.dumps(kubeconfig))
    given = {
        "kubeconfig": str(tmp_path / "kubelet.conf"),
        "node": "worker1",
        "capacities": {"example.com/dongle": 4},
        "kubelet_device_plugin_dir": str(tmp_path),
    }
    (tmp_path / "capacities.json").write_text(json.dumps(given))
    return tmp_path / "capacities.json"


def test_an_api_server_that_is_away(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert restored(settings) == 1
    assert capsys.readouterr().err == (
        "node-device-plugin: as the kubelet of worker1, with %s/kubelet.conf: the API server https://127.0.0.1:1 does "
        "not answer: Connection refused: retry when the API server answers\n" % settings.parent
    )


class BusyNode:
    """An API server at which somebody else writes the node's status between a look and the patch, so many times."""

    def __init__(self, times: int) -> None:
        self._left = times

    def node(self, name: str) -> dict[str, Any]:
        ours = Memory({"example.com/dongle": None}, ()).text()
        metadata = {"name": name, "annotations": {ANNOTATION: ours}}
        return {"metadata": metadata, "status": {"capacity": {"example.com/dongle": "0"}}}

    def patch_node_status(self, *_: Any) -> None:
        self._left -= 1
        if self._left >= 0:
            raise Conflict("the node has changed")


@pytest.mark.parametrize(
    ("times", "pauses", "says"),
    [(0, 0, ""), (4, 4, ""), (5, 4, "the node has changed")],
    ids=["never", "four times", "for ever"],
)
def test_a_node_that_others_write_to_is_tried_again_after_a_pause_and_not_for_ever(
    settings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    times: int,
    pauses: int,
    says: str,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(api.time, "sleep", waited.append)
    monkeypatch.setattr(restore, "Api", lambda _access, _dry_run: BusyNode(times))
    assert restored(settings) == (1 if says else 0)
    said = capsys.readouterr()
    assert ("example.com/dongle: restored to 4" in said.out) is not bool(says)
    assert says in said.err
    assert len(waited) == pauses
    assert all(seconds > 0 for seconds in waited)


@pytest.mark.parametrize(
    ("is_known", "capacity", "lingers", "operations"),
    [
        # The kubelet still lists what its device plugin had: it would write a removed key again.
        (True, "0", True, []),
        (False, "0", False, ["test", "remove"]),
        # Others have written this number.
        (False, "2", False, []),
    ],
)
def test_the_key_of_a_former_device_plugin_goes_once_the_kubelet_has_forgotten_it(
    is_known: bool, capacity: str, lingers: bool, operations: list[str]
) -> None:
    camera = "example.com/camera"
    known = frozenset([camera] if is_known else [])
    wanted = Wanted({}, frozenset(), known, by_claims=frozenset([camera, "example.com/never"]))
    node = {
        "metadata": {"name": "worker1", "annotations": {"a": "b"}},
        "status": {"capacity": {camera: capacity, "cpu": "1"}, "allocatable": {camera: capacity}},
    }
    found = plan(node, wanted)
    assert found.lingering == ((camera,) if lingers else ())
    assert [each["op"] for each in found.operations if each["path"].startswith("/status")] == operations
    assert [(row["resource"], row["state"]) for row in rows(node, wanted)] == [(camera, LEFT_BEHIND)]
