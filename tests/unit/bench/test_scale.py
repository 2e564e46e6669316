"""What counts as a request of a play, and as a write."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest
from bench.plays import CHECKOUT, Run

sys.path.insert(0, str(CHECKOUT / "tests" / "kubernetes"))

from bench import scale

RUN = Run(1.0, [], [], 0, 1.0)


def test_a_dry_run_is_a_request_and_no_write():
    requests = {
        "get pods": 2,
        "list nodes": 20,
        "patch daemonsets (dry run)": 1,
        "patch configmaps": 1,
        "create pods": 3,
    }
    ran = scale.Ran(RUN, requests, frozenset())
    assert (ran.total, ran.writes) == (27, 4)


def test_only_requests_of_plays_since_then_count(tmp_path, monkeypatch):
    monkeypatch.setattr(scale.time, "sleep", lambda _seconds: None)
    cluster = object.__new__(scale.Cluster)
    cluster._audit = audit = pathlib.Path(tmp_path / "audit.log")

    def log(verb, uri, agent="nodedevices", **place):
        with audit.open("a") as file:
            file.write(json.dumps({"verb": verb, "requestURI": uri, "userAgent": agent, "objectRef": place}) + "\n")

    log("get", "/api/v1/nodes/a", resource="nodes")
    with cluster.counted() as found:
        log("patch", "/api/v1/nodes/a/status?dryRun=All", resource="nodes", subresource="status")
        log("patch", "/api/v1/nodes/a", resource="nodes")
        log("patch", "/api/v1/nodes/a", agent="kube-scheduler", resource="nodes")
    assert found == {"patch nodes/status (dry run)": 1, "patch nodes": 1}


def test_a_report_without_a_row_for_each_node_that_differs_fails(tmp_path):
    (tmp_path / "status.json").write_text(json.dumps({"nodes": [{}, {}]}))
    assert scale._entries(tmp_path, 2) == [{}, {}]
    with pytest.raises(RuntimeError, match="has 2 entries, expected 3"):
        scale._entries(tmp_path, 3)
