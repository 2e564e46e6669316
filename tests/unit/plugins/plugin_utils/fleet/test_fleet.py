"""What is made of what was read of nodes: states, reasons, the document, the tables of text."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import document, node, page, resources, table
from fleet_nodes import (
    CDI_OFF,
    CDI_ON,
    FACTS,
    declared,
    device,
    fleet,
    held,
    serving,
    silent,
    status,
    well,
)
from profile_nodes import Pool

CAMERA = "example.com/camera"
NO_KUBELET = {**FACTS, "kubelet": None}


def entry(read):
    return node.entry("w1", read)


def only(read):
    """The one resource of a node."""
    (row,) = entry(read)["resources"]
    return row


def numbers(row):
    return row["capacity"], row["healthy"], row["allocated"], row["state"], row["reasons"]


def whole(*nodes):
    return document.document(nodes, "0.1.0", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))


def test_a_node_that_is_well():
    served = serving(
        CAMERA, device("a", shares=2), device("b"), device("c", "absent", "/dev/c: No such file or directory")
    )
    read = well(served, status=status(served, holds=[held(CAMERA, "a::1", "p"), held("other.io/x", "a::0", "q")]))
    found = entry(read)
    assert (found["state"], found["problems"]) == ("ok", [])
    assert found["runtime"]["cdi"]["effective"] is True
    assert found["kubelet"] == {"running": True, "version": "1.36.2"}
    assert found["plugin"]["version"] == "0.1.0"
    (row,) = found["resources"]
    # What may be left out, and was never there, is no capacity.
    assert numbers(row) == (3, 3, 1, "healthy", [])
    assert [each["held_by"] for each in row["devices"]] == [["default/p"], [], []]
    assert row["held_by"] == ["default/p"]


@pytest.mark.parametrize(
    ("served", "state", "reasons"),
    [
        (serving(CAMERA), "empty", []),
        (serving(CAMERA, device("a"), device("b", "unhealthy", "/dev/b: gone")), "degraded", ["b: /dev/b: gone"]),
        (serving(CAMERA, device("a", "unhealthy", "/dev/a: gone")), "unhealthy", ["a: /dev/a: gone"]),
        (serving(CAMERA, device("a"), refused={"b": "twice"}), "degraded", ["b is refused: twice"]),
        (
            serving(CAMERA, device("a"), registered=False),
            "not registered",
            ["the kubelet has no ListAndWatch stream open"],
        ),
    ],
)
def test_the_state_of_a_resource(served, state, reasons):
    row = only(well(served))
    assert (row["state"], row["reasons"]) == (state, reasons)
    assert entry(well(served))["state"] == ("ok" if state == "empty" else "wrong")


OPTIONAL = device("opt0", "absent", "/dev/zero: expected any 99:any, found c 1:5")


def test_what_is_left_out_has_its_reason_and_is_no_problem():
    found = entry(well(serving(CAMERA, OPTIONAL)))
    (row,) = found["resources"]
    absent = "without opt0: /dev/zero: expected any 99:any, found c 1:5"
    assert (found["state"], row["state"], row["reasons"], row["absent"]) == ("ok", "empty", [], [absent])
    assert absent in table.text(whole(found))
    assert "/dev/zero: expected any 99:any, found c 1:5" in page.html(whole(found))
    assert whole(found)["summary"]["findings"] == []
    nothing = {**serving(CAMERA), "left_out": {"lamp0": "lamp0 is no device node"}}
    assert only(well(nothing))["absent"] == ["without lamp0: lamp0 is no device node"]
    # Some names of a GPU are left out on every node, on purpose.
    some = {**serving(CAMERA, device("a")), "left_out": {"all": "its nodes are those of several others"}}
    assert only(well(some))["absent"] == []


def test_a_search_that_has_not_finished_is_a_reason():
    row = only(well({**serving(CAMERA), "late": "discovery by paths did not answer in 2 s"}))
    assert (row["state"], row["reasons"]) == ("degraded", ["discovery by paths did not answer in 2 s"])


@pytest.mark.parametrize("fails", [True, False])
def test_a_lost_device_is_wrong_as_the_nodes_own_command_says(fails):
    text = "GPU-1: default/app holds it, but it is lost: gone"
    lost = [
        {"resource": CAMERA, "device": "GPU-1", "text": text, "fails": fails},
        {"resource": "example.com/other", "device": "", "text": "of another resource", "fails": True},
    ]
    found = entry(well(serving(CAMERA), status={**status(serving(CAMERA)), "losses": lost}))
    (row,) = found["resources"]
    assert (found["state"], row["state"], row["reasons"]) == ("wrong", "degraded", [text])


def test_a_kubelet_that_lists_something_else_is_said():
    served = serving(CAMERA, device("a"), device("b"))
    row = only(well(served, status={**status(served), "allocatable": {CAMERA: ["a"]}}))
    assert numbers(row) == (2, 2, 0, "degraded", ["the plugin offers 2 healthy, but the kubelet lists 1"])


def test_a_resource_with_claims_is_in_no_list_of_the_kubelet():
    def row_of(**changes):
        served = {**serving(CAMERA, device("a"), device("b")), "api": "dra", **changes}
        holds = [{**held(CAMERA, "a", "p"), "claim": "default/p-a"}]
        return only(well(served, status={**status(served, holds=holds), "allocatable": {}}))

    assert (numbers(row_of()), row_of()["held_by"]) == ((2, 2, 1, "healthy", []), ["default/p"])
    late = row_of(problem="the API server does not answer")
    assert numbers(late)[3:] == ("degraded", ["the API server does not answer"])
    for problem, reason in ((None, "the kubelet has not registered the DRA driver"), ("refused", "refused")):
        away = row_of(registered=False, problem=problem)
        assert (away["state"], away["reasons"]) == ("not registered", [reason])


def test_without_a_kubelet_it_is_pending_and_nothing_is_wrong():
    served = serving(CAMERA, device("a"), registered=False)
    read = well(served, facts=NO_KUBELET, status=status(served, source="none"))
    found = entry(read)
    assert (found["state"], found["problems"]) == ("pending", [])
    assert numbers(found["resources"][0]) == (1, 1, None, "pending", [])
    assert [each["text"] for each in whole(found)["summary"]["findings"]] == [
        "no kubelet runs yet: the node has not joined"
    ]


def test_a_kubelet_that_stopped_is_wrong_and_its_checkpoint_says_who_holds_what():
    served = serving(CAMERA, device("a"), registered=False)
    said = status(served, holds=[held(CAMERA, "a", "0af3", namespace="")], source="checkpoint")
    found = entry(well(served, facts=NO_KUBELET, status=said))
    assert (found["state"], found["kubelet"]["running"]) == ("wrong", False)
    assert found["problems"] == ["no kubelet runs, but its checkpoint shows that one did: see systemctl status kubelet"]
    assert numbers(found["resources"][0]) == (1, 1, 1, "pending", [])
    assert found["resources"][0]["held_by"] == ["0af3"]


@pytest.mark.parametrize("source", ["checkpoint", "none"])
def test_a_kubelet_that_hangs_is_said_to(source):
    why = "/var/lib/kubelet/pod-resources/kubelet.sock: DEADLINE_EXCEEDED: Deadline Exceeded"
    served = serving(CAMERA, device("a"))
    found = entry(well(served, status={**status(served, source=source), "unanswered": why}))
    assert (found["state"], found["kubelet"]["running"]) == ("wrong", True)
    assert found["problems"] == [
        f"the kubelet runs but does not answer ({why}): it hangs, or its root directory is not kubelet_root_dir"
    ]
    # Where none runs nobody is asked in vain.
    joining = well(served, facts=NO_KUBELET, status={**status(served, source="none"), "unanswered": why})
    assert entry(joining)["problems"] == []


def test_the_labs_stand_in_is_not_called_by_a_kubelets_version():
    facts = {**FACTS, "kubelet": {**FACTS["kubelet"], "version": "1.36.2+stand-in"}}
    found = entry(well(serving(CAMERA, device("a")), facts=facts))
    assert found["kubelet"] == {"running": True, "version": "stand-in"}


SHOWN = {"status": {"nodeInfo": {"kubeletVersion": "v1.33.1"}}}


def test_a_kubelet_inside_another_process_is_known_by_its_answers():
    found = entry(well(serving(CAMERA, device("a")), facts=NO_KUBELET, node_object=SHOWN))
    assert found["kubelet"] == {"running": True, "version": "1.33.1"}
    assert found["state"] == "ok"


def test_cdi_off_is_wrong_although_every_device_is_healthy():
    found = entry(well(serving(CAMERA, device("a")), serving("example.com/none"), runtime=CDI_OFF))
    assert found["problems"] == [
        "CDI is off in the running container runtime, so containers do not get their devices: run site.yml"
    ]
    assert [row["state"] for row in found["resources"]] == ["without CDI", "empty"]


def test_cdi_off_is_fine_where_nothing_is_given_by_it():
    found = entry(
        well(serving(CAMERA, device("a")), runtime=CDI_OFF, declaration=declared(CAMERA, injection="device_nodes"))
    )
    assert (found["state"], found["resources"][0]["state"]) == ("ok", "healthy")
    assert found["runtime"]["cdi"]["effective"] is False


def test_a_runtime_that_does_not_read_our_directories():
    cdi = {"cdi": {"enabled": True, "spec_dirs": ["/etc/cdi/"]}}
    found = entry(well(serving(CAMERA, device("a")), runtime=cdi))
    assert found["problems"] == ["the running container runtime does not read /var/run/cdi: run site.yml"]


def test_a_runtime_that_does_not_tell_is_not_called_off():
    found = entry(well(serving(CAMERA, device("a")), runtime={"cdi": {"enabled": None, "spec_dirs": None}}))
    assert (found["state"], found["runtime"]["cdi"]["effective"]) == ("ok", None)


def test_a_runtime_that_cannot_turn_cdi_off():
    """containerd 2.4 and CRI-O; an older plugin's command on the node does not tell."""
    shown_as = table.COLUMNS["CDI"]
    told = {"enabled": True, "always_on": True, "spec_dirs": ["/etc/cdi", "/var/run/cdi"]}
    shown = {}
    for name, cdi in (("always", told), ("elsewhere", {**told, "spec_dirs": ["/etc/cdi"]}), ("older", CDI_ON["cdi"])):
        found = entry(well(serving(CAMERA, device("a")), runtime={"cdi": cdi}))
        shown[name] = (found["runtime"]["cdi"]["always_on"], shown_as(found))
    assert shown == {"always": (True, "always on"), "elsewhere": (True, "incomplete"), "older": (None, "on")}


def test_a_plugin_that_does_not_answer():
    lists = {"allocatable": {CAMERA: ["a"]}, "held": [held(CAMERA, "b", "p"), held(CAMERA, "c", "p")]}
    found = entry(well(serving(CAMERA), status=silent("no plugin answers at /x", **lists)))
    assert (found["state"], found["problems"], found["plugin"]) == ("wrong", ["no plugin answers at /x"], None)
    # The reason is the node's; it is not said of each resource again.
    assert numbers(found["resources"][0]) == (None, 1, 2, "not served", [])
    assert found["resources"][0]["held_by"] == ["default/p"]


def test_a_plugin_that_is_not_ready_or_runs_with_an_older_configuration():
    served = serving(CAMERA, device("a"), registered=False)
    configuration = {"path": "/c.yaml", "sha256": "x", "problems": ["resources[0]: wrong"]}
    said = [f"{CAMERA}: the kubelet has no ListAndWatch stream open", "the devices were never scanned"]
    found = entry(well(served, status=status(served, ready=False, not_ready=said, configuration=configuration)))
    assert found["problems"] == [
        "the plugin is not ready: the devices were never scanned",
        "/c.yaml is refused, so the plugin runs with an older configuration: resources[0]: wrong",
    ]
    assert table.COLUMNS["Plugin"](found) == "0.1.0 (not ready)"
    pulling = {"name": "a/b", "state": "ImagePullBackOff", "reason": "not found"}
    assert table.COLUMNS["Plugin"]({**found, "pod": pulling}) == "0.1.0 (not ready) pod ImagePullBackOff"
    assert table.COLUMNS["Plugin"]({**found, "plugin": None, "pod": pulling}) == "pod ImagePullBackOff"
    assert table.COLUMNS["Plugin"]({**found, "pod": {**pulling, "state": "Running"}}) == "0.1.0 (not ready) pod"


def test_without_the_plugin_the_node_is_not_provisioned_yet():
    found = entry(node.Read(facts={**FACTS, "commands": []}, declaration=declared(CAMERA)))
    assert (found["state"], found["problems"]) == ("not provisioned", ["the plugin is not installed: run site.yml"])
    assert found["resources"][0]["state"] == "pending"
    refused = entry(node.Read(facts={**FACTS, "commands": []}, problems=("no systemd",)))
    assert refused["state"] == "wrong"


def test_what_is_declared_and_what_is_served_may_differ():
    found = entry(well(serving("b.io/old", device("a")), declaration=declared("a.io/new")))
    new, old = found["resources"]
    assert (new["state"], new["declared"]) == ("not served", True)
    assert new["reasons"] == ["the running plugin does not serve it: run site.yml"]
    assert (old["state"], old["declared"]) == ("not declared", False)
    assert old["reasons"] == ["it is served but not declared: run site.yml to remove it"]


def test_a_declaration_that_cannot_be_read_is_a_problem_of_its_own():
    found = entry(well(serving(CAMERA, device("a")), declaration=None, problems=("node_devices_resources[0]: no",)))
    assert (found["state"], found["problems"]) == ("wrong", ["node_devices_resources[0]: no"])
    assert (found["resources"][0]["state"], found["resources"][0]["declared"]) == ("healthy", None)


def cluster_row(state, capacity="4", allocatable="4", declared="4", name="example.com/dongle"):
    return {"resource": name, "declared": declared, "capacity": capacity, "allocatable": allocatable, "state": state}


def test_fixed_capacities():
    wanted = declared(CAMERA, dongle=4, big=1000, none=0)
    shown = [
        cluster_row("as declared"),
        cluster_row("as declared", "1k", "1k", "1000", "example.com/big"),
        cluster_row("as declared", "0", "0", "0", "example.com/none"),
        # The plugin tells the device plugin's own.
        cluster_row("served", declared="plugin", name=CAMERA),
        cluster_row("no longer declared: the next run removes it", declared="-", name="example.com/past"),
    ]
    found = entry(well(serving(CAMERA, device("a")), declaration=wanted, cluster=shown))
    rows = {row["name"].partition("/")[2]: numbers(row) for row in found["resources"]}
    assert rows == {
        "camera": (1, 1, 0, "healthy", []),
        "dongle": (4, 4, None, "healthy", []),
        "big": (1000, 1000, None, "healthy", []),
        "none": (0, 0, None, "empty", []),
        "past": (4, 4, None, "not as declared", ["no longer declared: the next run removes it"]),
    }


@pytest.mark.parametrize("api_only", [False, True])
@pytest.mark.parametrize(
    ("capacity", "allocatable", "state", "of_node"),
    # The kubelet lists a former name with the last devices as unhealthy, or with none. The last one is somebody's.
    [("0", "0", "left behind", "ok"), ("3", "0", "left behind", "ok"), ("3", "3", "not as declared", "wrong")],
)
def test_a_resource_that_was_renamed_does_not_make_its_node_wrong(api_only, capacity, allocatable, state, of_node):
    """For the five minutes in which the kubelet still lists it."""
    memory = {extended_resources.ANNOTATION: json.dumps({"patched": {}, "served": ["a.io/old"]})}
    old = {
        "capacity": {"a.io/old": capacity},
        "allocatable": {"a.io/old": allocatable},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.9"},
    }
    shown = {"metadata": {"name": "w1", "annotations": memory}, "status": old}
    wanted = extended_resources.Wanted({}, frozenset([CAMERA]), frozenset([CAMERA, "a.io/old"]))
    rows = [row for row in extended_resources.rows(shown, wanted) if row["resource"] != CAMERA]
    read = {"declaration": declared(CAMERA), "cluster": rows, "node_object": shown, "api_only": api_only}
    found = entry(well(serving(CAMERA, device("a")), **read))
    assert found["runtime"]["version"] == ("2.1.9" if api_only else "1.7.24")
    (row,) = [each for each in found["resources"] if each["name"] == "a.io/old"]
    assert numbers(row) == (int(capacity), int(allocatable), None, state, [extended_resources.LEFT_BEHIND])
    assert (found["state"], row["declared"]) == (of_node, False)


def test_what_is_unknown_on_every_node_has_no_total():
    """Nobody knows how many of a fixed count pods hold: the page showed 0."""
    rows = [cluster_row("as declared")]
    nodes = [node.entry(name, well(declaration=declared(dongle=4), cluster=rows)) for name in ("w1", "w2")]
    (total,) = whole(*nodes)["summary"]["resources"]
    assert (total["capacity"], total["healthy"], total["allocated"]) == (8, 8, None)
    assert '<td class="n">8</td><td class="n">8</td><td class="n">-</td>' in page.html(whole(*nodes))


def test_a_fixed_capacity_that_was_reset_and_one_that_was_not_read():
    reset = cluster_row("reset by a restart of the kubelet: the next run restores it", "0", "-")
    found = entry(well(declaration=declared(dongle=4), cluster=[reset]))
    assert numbers(found["resources"][0]) == (0, None, None, "not as declared", [reset["state"]])
    assert found["state"] == "wrong"
    assert numbers(only(well(declaration=declared(dongle=4)))) == (4, None, None, "unknown", [])


def test_a_node_that_is_not_reached_keeps_what_is_declared_for_it():
    found = entry(node.Read(unreachable="no route", declaration=declared(CAMERA), problems=("declared badly",)))
    assert (found["state"], found["problems"]) == ("unreachable", ["no route", "declared badly"])
    assert (found["runtime"], found["kubelet"], found["plugin"]) == (None, None, None)
    assert numbers(found["resources"][0]) == (None, None, None, "unknown", [])
    assert [each["text"] for each in whole(found)["summary"]["findings"]] == ["declared badly", "not reached"]


def test_a_finding_stands_once_with_all_its_nodes_and_the_worst_is_first():
    gone = serving(CAMERA, device("a"), device("b", "unhealthy", "/dev/b: gone"))
    off = well(serving(CAMERA, device("a")), serving("example.com/lidar", device("l")), runtime=CDI_OFF)
    closed = [serving(name, device("a"), registered=False) for name in (CAMERA, "example.com/lidar")]
    nodes = [
        node.entry("w1", well(gone)),
        node.entry("w2", well(gone)),
        node.entry("w3", off),
        node.entry("w4", well(*closed)),
        node.not_read("w5", "no route"),
        node.entry("w6", well(*closed)),
    ]
    assert [tuple(each.values()) for each in document.findings(nodes)] == [
        ("failed", "the kubelet has no ListAndWatch stream open", [CAMERA, "example.com/lidar"], ["w4", "w6"]),
        (
            "failed",
            "CDI is off in the running container runtime, so containers do not get their devices: run site.yml",
            [],
            ["w3"],
        ),
        ("degraded", "b: /dev/b: gone", [CAMERA], ["w1", "w2"]),
        ("unknown", "not reached", [], ["w5"]),
    ]


def _of_image(name, image_id, architecture="amd64", image="example.com/plugin:1"):
    of_pod = {"image": image, "image_id": image_id, "architecture": architecture, "reason": None}
    return node.entry(name, well(pod={"name": "a/b", "state": "Running", **of_pod}))


def test_pods_of_one_image_that_run_different_builds_are_said():
    old, new, imported = "example.com/plugin@sha256:1", "example.com/plugin@sha256:2", "sha256:3"
    alike = [
        _of_image("a", new),
        _of_image("b", new),
        # Of another architecture, imported, of another tag; and one that has not started, and a service.
        _of_image("arm", old, "arm64"),
        _of_image("imported", imported),
        _of_image("other", old, image="example.com/plugin:2"),
        _of_image("starts", None),
        node.entry("service", well()),
    ]
    assert list(document.findings(alike)) == []
    (found,) = document.findings([*alike, _of_image("late", old)])
    assert (found["severity"], found["resources"], found["nodes"]) == ("degraded", [], ["late"])
    assert found["text"].startswith("example.com/plugin:1 is not the same image on all nodes, so some pods run another")


def test_the_document():
    nodes = [
        node.entry("w1", well(serving(CAMERA, device("a"), device("b", "unhealthy", "x")))),
        node.entry("w2", well(serving(CAMERA, device("a")), facts={**FACTS, "kubelet": {"pid": 1, "version": None}})),
        node.not_read("w3", "no route"),
    ]
    data = json.loads(json.dumps(whole(*nodes)))
    assert {key: data[key] for key in ("schema_version", "generated", "collection_version")} == {
        "schema_version": 1,
        "generated": "2026-01-02T03:04:05Z",
        "collection_version": "0.1.0",
    }
    assert data["nodes"] == nodes
    assert data["summary"]["nodes"] == {"wrong": 1, "unreachable": 1, "ok": 1}
    assert data["summary"]["versions"] == {
        "container runtime": {"containerd 1.7.24": 2, "unknown": 1},
        "kubelet": {"1.36.2": 1, "unknown": 2},
        "plugin": {"0.1.0": 2, "unknown": 1},
    }
    assert data["summary"]["resources"] == [
        {
            "name": CAMERA,
            "nodes": 2,
            "capacity": 3,
            "healthy": 2,
            "allocated": 0,
            "states": {"degraded": 1, "healthy": 1},
        }
    ]


def test_the_tables():
    served = serving(CAMERA, device("a"), device("b", "unhealthy", "two\nlines"))
    nodes = [
        node.entry("worker1", well(served)),
        node.entry("w2", well(runtime=CDI_ON, facts=NO_KUBELET, status=status(source="none"))),
        node.not_read("w3", "no\nroute"),
    ]
    assert table.text(whole(*nodes)).splitlines() == [
        "NODE     STATE        RUNTIME            CDI  PLUGIN  CONFIGURATION  KUBELET  PROBLEMS",
        "worker1  wrong        containerd 1.7.24  on   0.1.0   5a55b299645f   1.36.2   -",
        "w2       pending      containerd 1.7.24  on   0.1.0   5a55b299645f   none     -",
        "w3       unreachable  -                  -    -       -              -        no route",
        "",
        "NODE     RESOURCE            CAPACITY  HEALTHY  ALLOCATED  STATE     REASONS",
        "worker1  example.com/camera  2         1        0          degraded  b: two lines",
        "",
        "3 nodes: 1 wrong, 1 unreachable, 1 pending",
    ]
    assert table.text(whole(nodes[2])).splitlines()[-1] == "1 node: 1 unreachable"


def test_a_node_cannot_write_to_the_terminal():
    served = serving(CAMERA, device("a"), device("b", "unhealthy", "\x1b[2Jgone\x07"))
    written = table.text(whole(node.entry("worker1", well(served))))
    assert "\x1b" not in written
    assert written.splitlines()[4].endswith(r"b: \x1b[2Jgone\x07")


def test_every_state_of_a_fleet_has_a_severity():
    nodes = fleet(80, 6)
    assert {each["state"] for each in nodes} == set(node.STATES)
    states = {row["state"] for each in nodes for row in each["resources"]}
    assert states <= set(resources.STATES)
    assert states >= {"not served", "not registered", "without CDI", "unhealthy", "degraded", "unknown", "pending"}


def documented():
    """The table of docs/status.md: a key's path, without what is a list in it, to the words in backticks of its row."""
    page = (Path(__file__).parents[5] / "docs" / "status.md").read_text(encoding="utf-8")
    rows, above = {}, ["nodes", "resources"]
    for line in page.partition("## The JSON")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "key":
            depth = cells[0].count("\N{HORIZONTAL ELLIPSIS}")
            for key in re.findall("`([^`]+)`", cells[0]):
                path = ".".join([*above[:depth], key.replace("[]", "")])
                rows[path] = {word for said in cells[1:] for word in re.findall("`([^`]+)`", said)}
    return rows


COUNTED = ("summary.nodes", "summary.versions", "summary.resources.states", "nodes.versions", "nodes.resources.states")


def leaves(value, path=""):
    """Paths of all values; keys that are data themselves (a version, a state) are none."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {leaf for each in value for leaf in leaves(each, path)}
    if not isinstance(value, dict) or path in COUNTED:
        return {path}
    return {leaf for name, each in value.items() for leaf in leaves(each, f"{path}.{name}".lstrip("."))}


def test_the_json_has_the_keys_that_are_documented():
    rows = documented()
    assert {"summary.findings", "nodes.pod", "nodes.resources.devices"} <= set(rows)
    pod = dict.fromkeys(("name", "state", "reason", "image", "image_id", "architecture"), "x")
    pool = Pool()
    for number in range(60):
        pool.add(f"n{number}", usable=1)
    entries = [*fleet(44, 4), node.entry("pod", well(pod=pod)), *pool.statuses()]
    there = leaves(document.document(entries, "0.1.0", datetime.datetime.now(datetime.UTC)))
    assert [row for row in rows if not any(f"{leaf}.".startswith(f"{row}.") for leaf in there)] == []
    undocumented = []
    for leaf in sorted(there - set(rows)):
        row = max((path for path in rows if leaf.startswith(f"{path}.")), key=len, default="")
        # In its row by its own name, or with its parent's, such as cdi.enabled.
        if leaf[len(row) :].lstrip(".") not in rows.get(row, ()):
            undocumented.append(leaf)
    # A part that is null on some nodes has its keys on others.
    assert [leaf for leaf in undocumented if not any(row.startswith(f"{leaf}.") for row in rows)] == []
