"""A node restores, with its kubelet's credentials, what a restart of the kubelet has reset, and nothing else."""

from __future__ import annotations

import json

import pytest
import stand_in

from node_device_plugin.cli.main import main
from node_device_plugin.cluster import api
from node_device_plugin.kubelet import restore

DONGLE, LICENSE = "example.com/dongle", "example.com/license"


@pytest.fixture
def node(cluster):
    """The node whose kubelet's credentials the file ``kubelet`` has."""
    node = cluster.node({"cpu": "2"}, stand_in.KUBELETS_NODE)
    with node.kubelet():
        yield node
    node.delete()


@pytest.fixture
def device_plugins(tmp_path):
    """The kubelet's device plugin directory: lets its checkpoint list resources."""

    def register(*names):
        data = {"RegisteredDevices": {name: ["1"] for name in names}, "PodDeviceEntries": None}
        content = {"Data": data, "Checksum": 1}
        (tmp_path / "kubelet_internal_checkpoint").write_text(json.dumps(content))

    return register


@pytest.fixture
def settings(cluster, node, tmp_path):
    """The file that role extended_resources writes, with other values where a test gives them."""

    def write(capacities, **other):
        given = {
            "kubeconfig": cluster.kubeconfig({"token": "kubelet-token"}),
            "node": node.name,
            "capacities": capacities,
            "kubelet_device_plugin_dir": str(tmp_path),
            **other,
        }
        path = tmp_path / "capacities.json"
        path.write_text(json.dumps(given))
        return str(path)

    return write


def restored(path, *options):
    """The exit code of the command."""
    return main(["capacities", "restore", "--config", path, *options])


def test_what_the_kubelet_reset_is_restored_and_the_rest_is_left_alone(run, node, settings, capsys):
    run(node, {DONGLE: 4, LICENSE: 2})
    node.set_capacity("others", "example.com/theirs", "7")
    node.set_capacity("kubelet", DONGLE, "0")
    path = settings({DONGLE: 4, LICENSE: 2})
    assert restored(path) == 0
    assert node.extended == {DONGLE: "4", LICENSE: "2", "example.com/theirs": "7"}
    assert capsys.readouterr().out == f"{DONGLE}: restored to 4: a restart of the kubelet had reset it\n"
    # A run has nothing left to do, and knows what is ours.
    assert run(node, {DONGLE: 4, LICENSE: 2})["changed"] is False
    version = node.version()
    assert restored(path) == 0
    assert capsys.readouterr().out == ""
    assert node.version() == version


def test_a_number_that_somebody_set_stays(run, node, settings):
    run(node, {DONGLE: 4})
    node.set_capacity("others", DONGLE, "3")
    assert restored(settings({DONGLE: 4})) == 0
    assert node.extended == {DONGLE: "3"}


def test_what_is_not_ours_yet_or_any_more_is_not_restored(run, node, settings):
    node.set_capacity("others", DONGLE, "0")
    assert restored(settings({DONGLE: 4})) == 0
    assert node.extended == {DONGLE: "0"}
    run(node, {DONGLE: 4})
    run(node, {})
    assert restored(settings({DONGLE: 4})) == 0
    assert node.extended == {}


@pytest.mark.parametrize(
    ("registered", "left"), [(set(), {}), ({DONGLE}, {DONGLE: "0"})], ids=["gone", "a device plugin's"]
)
def test_a_capacity_that_a_run_takes_away_meanwhile_does_not_come_back(
    run, node, settings, monkeypatch, registered, left
):
    run(node, {DONGLE: 4})
    node.registered = registered
    node.set_capacity("kubelet", DONGLE, "0")
    patch, meanwhile = restore.Api.patch_node_status, []

    def patch_after_a_run(self, *arguments):
        if not meanwhile:
            meanwhile.append(run(node, {}))
        return patch(self, *arguments)

    monkeypatch.setattr(restore.Api, "patch_node_status", patch_after_a_run)
    monkeypatch.setattr(api, "_PAUSE", 0.01)
    assert restored(settings({DONGLE: 4})) == 0
    assert meanwhile[0]["changed"] is True
    assert node.extended == left


def test_what_a_device_plugin_serves_is_the_kubelets(run, node, settings, device_plugins):
    run(node, {DONGLE: 4})
    node.set_capacity("kubelet", DONGLE, "0")
    device_plugins(DONGLE)
    assert restored(settings({DONGLE: 4})) == 0
    assert node.extended == {DONGLE: "0"}
    device_plugins(LICENSE)
    assert restored(settings({DONGLE: 4})) == 0
    assert node.extended == {DONGLE: "4"}


def test_a_dry_run_restores_nothing(run, node, settings, capsys):
    run(node, {DONGLE: 4})
    node.set_capacity("kubelet", DONGLE, "0")
    assert restored(settings({DONGLE: 4}), "--dry-run") == 0
    assert node.extended == {DONGLE: "0"}
    assert DONGLE in capsys.readouterr().out


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_kubelet_has_no_right_to_another_node(cluster, run, settings, options, capsys):
    other = cluster.node({"cpu": "2"})
    with other.kubelet():
        run(other, {DONGLE: 4})
        other.set_capacity("kubelet", DONGLE, "0")
        assert restored(settings({DONGLE: 4}, node=other.name), *options) == 1
        assert other.extended == {DONGLE: "0"}
    assert f'nodes "{other.name}" is forbidden' in capsys.readouterr().err


def test_a_dry_run_shows_that_the_right_to_patch_is_missing(cluster, node, settings, capsys):
    path = settings({DONGLE: 4}, kubeconfig=cluster.kubeconfig({"token": "reader-token"}))
    assert restored(path, "--dry-run") == 1
    assert "give this user patch on nodes/status" in capsys.readouterr().err


def test_why_nothing_can_be_restored(node, settings, tmp_path, capsys):
    damaged = "capacities.json is damaged"
    for capacities, other, reason in (
        ({DONGLE: 4}, {"kubeconfig": "/none"}, "the kubelet's kubeconfig /none: No such file or directory"),
        ({DONGLE: 4}, {"node": "elsewhere"}, "as the kubelet of elsewhere, with "),
        ({DONGLE: "many"}, {}, damaged),
        ({DONGLE: 4}, {"more": 1}, damaged),
        ([DONGLE], {}, damaged),
    ):
        assert restored(settings(capacities, **other)) == 1
        assert reason in capsys.readouterr().err
    assert restored(str(tmp_path / "none.json")) == 1
    assert "none.json: No such file or directory" in capsys.readouterr().err
    (tmp_path / "kubelet_internal_checkpoint").write_text("{")
    assert restored(settings({DONGLE: 4})) == 1
    assert "kubelet_internal_checkpoint" in capsys.readouterr().err
