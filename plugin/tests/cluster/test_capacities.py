"""The command ``capacities restore`` on a node, which may have the oldest Python: what it says where it cannot.

What it restores is held to API servers in tests/kubernetes.
"""

import json
from pathlib import Path

import pytest

from node_device_plugin.cli.main import main


def restored(path: Path) -> int:
    return main(["capacities", "restore", "--config", str(path)])


def test_no_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert restored(tmp_path / "none.json") == 1
    assert capsys.readouterr().err == "node-device-plugin: %s/none.json: No such file or directory\n" % tmp_path


def test_an_api_server_that_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
    }
    (tmp_path / "kubelet.conf").write_text(json.dumps(kubeconfig))
    settings = {
        "kubeconfig": str(tmp_path / "kubelet.conf"),
        "node": "worker1",
        "capacities": {"example.com/dongle": 4},
        "kubelet_device_plugin_dir": str(tmp_path),
    }
    (tmp_path / "capacities.json").write_text(json.dumps(settings))
    assert restored(tmp_path / "capacities.json") == 1
    assert capsys.readouterr().err == (
        "node-device-plugin: as the kubelet of worker1, by %s/kubelet.conf: the API server https://127.0.0.1:1 does "
        "not answer: Connection refused: run again when it does\n" % tmp_path
    )
