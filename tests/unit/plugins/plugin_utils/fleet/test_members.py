"""The rows of a profile: how many nodes each stands for, in the document, the tables and the page."""

from __future__ import annotations

import datetime
import re

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import document, node, page, table, together
from fleet_nodes import declared, device, serving, well
from profile_nodes import CAMERA, DECLARED, Pool, ready, waiting

NO_IMAGE = waiting("ImagePullBackOff", 'Back-off pulling image "example.com/plugin:1"')


def whole(*entries):
    return document.document(entries, "0.1.0", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))


@pytest.fixture
def pool():
    return Pool()


def looks(entries):
    return [(table.label(each), each["state"], document.weight(each)) for each in entries]


def test_nodes_that_are_as_declared_share_a_row_with_their_sums(pool):
    for number in range(38):
        pool.add(f"n{number}", kubeletVersion="v1.36.2" if number < 8 else "v1.37.0")
    for name in ("without-1", "without-2"):
        pool.add(name, count=0)
    (entry,) = entries = pool.statuses()
    assert looks(entries) == [("gpu-pool: 40 nodes", "ok", 40)]
    assert "names" not in entry
    assert entry["resources"][0]["state"] == "healthy"
    data = whole(entry, node.entry("rack", well(serving(CAMERA, device("a")))))
    assert data["summary"]["nodes"] == {"ok": 41}
    assert data["summary"]["versions"] == {
        "container runtime": {"containerd 2.1.4": 40, "containerd 1.7.24": 1},
        "kubelet": {"1.37.0": 32, "1.36.2": 9},
        "plugin": {"unknown": 40, "0.1.0": 1},
    }
    (row,) = data["summary"]["resources"]
    assert (row["nodes"], row["capacity"], row["healthy"]) == (41, 77, 77)
    assert row["states"] == {"empty": 2, "healthy": 39}
    assert data["summary"]["findings"] == []
    first, second = (table.text(whole(entry)).splitlines()[at] for at in (1, 4))
    assert first == "gpu-pool: 40 nodes  ok     containerd 2.1.4  pod     1.37.0 (32), 1.36.2 (8)"
    assert second == "gpu-pool: 40 nodes  example.com/camera  76        76       2 empty, 38 healthy"


def test_slices_tell_what_nodes_offer_by_claims(pool):
    for name in ("two", "none", "without"):
        pool.add(name, count=None)
    pool.slices = {"two/camera.example.com": 2, "none/camera.example.com": 0}
    resources = [{"name": CAMERA, "api": "dra", "devices": [{"id": "a", "nodes": [{"path": "/dev/null"}]}]}]
    declared = {**DECLARED, "configuration": {"resources": resources}, "resources": resources}
    first, different = pool.statuses(declared)
    assert (first["resources"][0]["capacity"], document.weight(first)) == (2, 2)
    (row,) = different["resources"]
    assert (different["name"], row["reasons"]) == ("without", ["the node has no ResourceSlice of it"])


def test_a_table_of_a_profile_fits_a_terminal(pool):
    pool.add("gpu-1")
    lines = table.text(whole(*pool.statuses())).splitlines()
    assert lines[0].split() == ["NODE", "STATE", "RUNTIME", "PLUGIN", "KUBELET"]
    assert max(map(len, lines)) <= 80


def test_each_node_that_differs_has_its_own_row(pool):
    pool.add("well")
    pool.add("image-1", pod=NO_IMAGE)
    pool.add("image-2", pod=NO_IMAGE)
    pool.add("lost", usable=1)
    pool.add("away")
    pool.is_away("away")
    entries = pool.statuses()
    assert looks(entries) == [
        ("gpu-pool: 1 node", "ok", 1),
        ("gpu-pool: away", "wrong", 1),
        ("gpu-pool: image-1", "wrong", 1),
        ("gpu-pool: image-2", "wrong", 1),
        ("gpu-pool: lost", "wrong", 1),
    ]
    assert entries[0]["problems"] == ["4 of 5 nodes differ, and have rows of their own"]
    assert entries[2]["problems"][0].startswith("pod node-devices/gpu-00002 does not run: ImagePullBackOff")
    # The pod's name would make the same problem two.
    found = {tuple(each["nodes"]): each["text"] for each in whole(*entries)["summary"]["findings"]}
    assert set(found) == {("away",), ("image-1", "image-2"), ("lost",)}
    assert found["image-1", "image-2"].startswith("the plugin's pod does not run: ImagePullBackOff")
    assert found["lost",] == "1 of 2 are allocatable: the log of the plugin's pod has the reason"


def test_an_outdated_pod_is_one_finding(pool):
    for name in ("a", "b"):
        pool.add(name, revision="old")
    (found,) = document.findings(pool.statuses())
    assert found["nodes"] == ["a", "b"]
    assert "a pod that does not become ready blocks the others" in found["text"]


def test_what_a_kubelet_says_of_a_pod_is_one_finding(pool):
    for name in ("a", "b"):
        message = f"back-off 5m0s restarting failed container=x pod=gpu-{name}_node-devices(9f5c1c9b)"
        pool.add(name, pod=waiting("CrashLoopBackOff", message))
    (found,) = document.findings(pool.statuses())
    assert found["nodes"] == ["a", "b"]


def test_no_row_is_ok_if_all_nodes_differ_and_an_empty_pool_has_one(pool):
    assert looks(pool.statuses()) == [("gpu-pool: 0 nodes", "ok", 0)]
    assert pool.statuses()[0]["problems"] == ["no node has these labels"]
    pool.add("a", pod=NO_IMAGE)
    assert looks(pool.statuses()) == [("gpu-pool: a", "wrong", 1)]


def test_thousands_of_nodes_with_one_problem_share_a_row(pool):
    for number in range(2000):
        pool.add(f"n{number:04}", pod=NO_IMAGE)
    (entry,) = entries = pool.statuses()
    assert looks(entries) == [("gpu-pool: n0000 and 1999 more", "wrong", 2000)]
    assert entry["names"] == [f"n{number:04}" for number in range(2000)]
    assert [text[:34] for text in entry["problems"]] == ["the plugin's pod does not run: Ima"]
    data = whole(entry)
    assert data["summary"]["nodes"] == {"wrong": 2000}
    assert data["summary"]["findings"][0]["nodes"] == entry["names"]
    assert table.text(data).splitlines()[-1] == "2000 nodes: 2000 wrong"
    html = page.html(data)
    assert "<h1>2000 of 2000 nodes are not ok</h1>" in html
    assert 'data-nodes="2000"' in html
    # The row's part of the page has the names, and the finding leads to it once.
    assert html.count("n1999") == 1
    assert len(re.findall('href="#node-gpu-pool', html)) == 2


def test_each_problem_of_many_nodes_has_a_row(pool):
    for number in range(60):
        pool.add(f"n{number:02}", pod=waiting("ImagePullBackOff", f"no image {number % 2}"))
    entries = pool.statuses()
    assert [each["members"] for each in entries] == [30, 30]
    assert [each["problems"][0][-10:] for each in entries] == ["no image 0", "no image 1"]


def test_nodes_whose_problems_all_differ_share_a_row_by_state(pool):
    for number in range(together.MOST_ENTRIES + 1):
        ended = {"reason": "Error", "message": f"cannot open /dev/video{number}"}
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        pool.add(f"n{number:02}", pod=ready(ready=False, state=state, lastState={"terminated": ended}))
    pool.add("lost-1", usable=0)
    pool.add("lost-2", usable=0)
    entries = pool.statuses()
    assert looks(entries) == [("gpu-pool: lost-1 and 1 more", "wrong", 2), ("gpu-pool: n00 and 50 more", "wrong", 51)]
    assert (entries[0]["resources"][0]["state"], entries[0]["resources"][0]["capacity"]) == ("unhealthy", 4)
    (problem,) = entries[1]["problems"]
    assert problem.startswith("different on these nodes: the plugin's pod does not run: CrashLoopBackOff: cannot open")
    assert problem.count("(1 node)") == 3
    assert problem.endswith("; and 48 more")
    assert entries[1]["pod"]["state"] == "CrashLoopBackOff"


def test_most_nodes_of_a_profile_have_rows_of_their_own(pool):
    for number in range(together.MOST_ENTRIES):
        pool.add(f"n{number:02}", pod=NO_IMAGE)
    assert len(pool.statuses()) == together.MOST_ENTRIES


def test_another_build_under_the_same_name_is_a_finding_with_the_nodes_names(pool):
    for number in range(3):
        pool.add(f"n{number}")
    pool.add("late", pod={**ready(imageID="example.com/plugin@sha256:0"), "phase": "Running"})
    entries = pool.statuses()
    assert looks(entries) == [("gpu-pool: 3 nodes", "ok", 3), ("gpu-pool: late", "ok", 1)]
    (found,) = document.findings(entries)
    assert found["nodes"] == ["late"]
    # One host of another build is fewer than the profile's nodes, and two hosts would not be if they counted as rows.
    pod = {**entries[1]["pod"], "image_id": "example.com/plugin@sha256:2"}
    hosts = [node.entry(name, well(pod=pod)) for name in ("h1", "h2")]
    (found,) = document.findings([entries[0], *hosts])
    assert found["nodes"] == ["h1", "h2"]


def test_a_host_with_an_entry_of_its_own_is_not_counted_twice(pool):
    pool.add("named")
    pool.add("unnamed")
    assert looks(pool.statuses(named={"named"})) == [("gpu-pool: 1 node", "ok", 1)]


def test_nodes_whose_label_names_no_daemonset_count_as_wrong(pool):
    pool.add("well")
    for name in ("stray-1", "stray-2"):
        pool.add(name, labels={"nodedevices.kubernetes/device-plugin": "nobody"}, pod={})
    entries = pool.statuses()
    assert looks(entries) == [("gpu-pool: 1 node", "ok", 1), ("stray-1 and 1 more", "wrong", 2)]
    (found,) = document.findings(entries)
    assert found["nodes"] == ["stray-1", "stray-2"]
    assert found["text"].startswith("label nodedevices.kubernetes/device-plugin=nobody names no DaemonSet")
    assert looks(pool.statuses(named={"stray-1", "stray-2"})) == [("gpu-pool: 1 node", "ok", 1)]


def test_a_runtime_without_cdi_is_found_by_its_version(pool):
    pool.add("old", containerRuntimeVersion="containerd://1.6.20")
    assert looks(pool.statuses()) == [("gpu-pool: 1 node", "ok", 1)]
    (entry,) = pool.statuses({**DECLARED, "needs_cdi": True})
    assert entry["problems"][0].startswith("containerd 1.6.20 gives containers no CDI devices")


def test_the_page_says_how_many_nodes_a_row_has_and_what_is_unseen(pool):
    for number in range(3):
        pool.add(f"n{number}")
    pool.add("without", count=0)
    html = page.html(whole(*pool.statuses()))
    assert "<h1>All 4 nodes are ok</h1>" in html
    assert "<h3>gpu-pool: 4 nodes</h3>" in html
    assert "1 empty, 3 healthy" in html
    # Among the totals, and in the row's part of the page.
    assert html.count(" 1 empty</span>") == 2
    assert "Nodes of a profile are judged by their node objects and pods." in html
    named = node.entry("w1", node.Read(unreachable="no route", declaration=declared(CAMERA)))
    assert "Nodes of a profile" not in page.html(whole(named))
