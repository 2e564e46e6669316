"""What a scenario keeps of a cluster after a failure."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "molecule/shared"))

import evidence

# The stand-in lists no nodes.
pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)


def test_the_objects_of_a_cluster_are_kept(cluster, tmp_path, capsys):
    node = cluster.node({"cpu": "2"})
    evidence.main(tmp_path / "kept", cluster.kubeconfig(), [])
    kept = {path.name: json.loads(path.read_text()) for path in (tmp_path / "kept/cluster").iterdir()}
    assert sorted(kept) == ["daemonsets.json", "events.json", "nodes.json", "pods.json"]
    assert node.name in [each["metadata"]["name"] for each in kept["nodes.json"]]
    assert capsys.readouterr().err == ""


def test_a_cluster_that_does_not_answer_costs_its_own_part_alone(cluster, unused_server, tmp_path, capsys):
    evidence.main(tmp_path / "kept", cluster.kubeconfig(server=unused_server), [])
    assert f"cluster: not all could be read: the API server {unused_server}" in capsys.readouterr().err
