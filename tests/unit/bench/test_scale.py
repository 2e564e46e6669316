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


def test_a_report_that_asked_another_number_of_plugins_fails(tmp_path):
    summary = {"nodes": {"wrong": 2}, "versions": {"plugin": {"unknown": 7, "1.0": 3}}}
    (tmp_path / "status.json").write_text(json.dumps({"summary": summary}))
    (tmp_path / "status.html").write_text("Only the plugins of a sample, and")
    scale._check(tmp_path, wrong=2, asked=3)
    with pytest.raises(RuntimeError, match="2 wrong nodes and 4 asked plugins expected, not 2 and 3"):
        scale._check(tmp_path, wrong=2, asked=4)
    (tmp_path / "status.html").write_text("")
    with pytest.raises(RuntimeError, match="unseen"):
        scale._check(tmp_path, wrong=2, asked=3)
