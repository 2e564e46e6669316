"""Which CDI specs a node gets: additions first, removals when nobody holds the device."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import NamedTuple

import pytest

from node_device_plugin.cdi import directories, role_specs
from node_device_plugin.declaration import cdi, parse_resources
from node_device_plugin.declaration.device_plugin_api import with_device_ids

FILE = "node-device-plugin_example.com_camera.json"
PATH = f"/etc/cdi/{FILE}"


def resource(*ids, edits=None, **rest):
    devices = [{"id": name, "nodes": [{"path": f"/dev/{name}"}]} for name in ids]
    return {"name": "example.com/camera", "devices": devices, "container_edits": edits or {}, **rest}


def read(*resources):
    return cdi.render_specs(parse_resources(resources))


class File(NamedTuple):
    path: str
    content: str


file = File


class Node(NamedTuple):
    found: role_specs.Found
    runtime: role_specs.Runtime


def node(*files, ours=(PATH,), version="1.7.24", name="containerd"):
    """What `find` reads of files in any directory, without the directories that have none."""
    runtime = role_specs.Runtime(name, version)
    present, others = {}, {}
    for path, content in files:
        directory, _, base = path.rpartition("/")
        others.setdefault(directory, [])
        if path in ours:
            present[base] = role_specs.read_spec(content.encode())
        else:
            checked = directories.check_content(path, (content or "").encode(), runtime.accepted)
            others[directory].append(dataclasses.replace(checked, owner=directories.FOREIGN))
    return Node(role_specs.Found(present, others), runtime)


def node_with(*resources):
    return node(*(file(f"/etc/cdi/{name}", cdi.serialise(spec)) for name, spec in read(*resources).items()))


def made(node_now, *resources, templates=()):
    return role_specs.Specs(parse_resources(resources), dict(templates), *node_now)


def refused(wanted):
    return wanted.refused(wanted.to_write([]))


def devices(spec):
    return [device["name"] for device in spec["devices"]]


def test_a_bare_node_gets_what_is_declared():
    wanted = made(node(), resource("a", "b"))
    assert wanted.leftovers == []
    assert wanted.to_write([]) == read(resource("a", "b"))


def test_what_is_no_longer_declared_stays_at_first():
    wanted = made(node_with(resource("a", "b", "c")), resource("b"))
    assert [leftover.name for leftover in wanted.leftovers] == ["example.com/camera=a", "example.com/camera=c"]
    assert devices(wanted.to_write(wanted.leftovers)[FILE]) == ["b", "a", "c"]


def test_a_resource_that_is_gone_keeps_its_file_for_what_stays():
    wanted = made(node_with(resource("a", "b")))
    assert devices(wanted.to_write(wanted.leftovers[:1])[FILE]) == ["a"]
    assert wanted.to_write([]) == {}


def answer(*held, allocatable=None):
    """The answer of `node-device-plugin holders`, as its readers give it to role_specs."""
    return with_device_ids({"held": held, "allocatable": allocatable or {}})


def test_what_a_pod_holds_stays_and_the_rest_goes():
    wanted = made(node_with(resource("a", "b", "c", replicas=2)), resource("c", replicas=2))
    viewer = {"resource": "example.com/camera", "device": "a::1", "namespace": "default", "pod": "viewer"}
    holders = answer(viewer, allocatable={"example.com/camera": ["b::0", "b::1"]})
    assert [(held.device, held.reason) for held in wanted.must_stay(holders, advertised_counts=True)] == [
        ("a", "held by default/viewer"),
        ("b", "still offered by the kubelet as example.com/camera"),
    ]
    assert [held.device for held in wanted.must_stay(holders, advertised_counts=False)] == ["a"]


OWN = json.dumps(
    {
        "cdiVersion": "0.5.0",
        "kind": "example.com/fpga",
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/fpga0"}]}}],
    }
)
NEEDS_FPGA = {"name": "example.com/card", "devices": [{"id": "card", "cdi_devices": ["example.com/fpga=0"]}]}


TEMPLATES = {"node-devices_example.com_fpga.json": json.loads(OWN)}


def test_a_template_s_spec_has_the_device_that_a_resource_needs():
    assert "example.com/fpga=0 is in no valid CDI spec" in next(made(node(), NEEDS_FPGA).missing())
    wanted = made(node(), NEEDS_FPGA, templates=TEMPLATES)
    assert list(wanted.missing()) == []
    assert wanted.to_write([])["node-devices_example.com_fpga.json"] == json.loads(OWN)


def test_a_template_s_device_stays_while_a_pod_holds_it_by_another_id():
    path = "/etc/cdi/node-devices_example.com_fpga.json"
    gone = made(node(file(path, OWN), ours=(path,)))
    held = {"resource": "example.com/card", "device": "card", "namespace": "default", "pod": "user"}
    holders = answer({**held, "cdi_names": ["example.com/fpga=0"]}, {**held, "cdi_names": ["example.com/fpga=1"]})
    (staying,) = gone.must_stay(holders, advertised_counts=False)
    assert staying.reason == "held by default/user"
    assert [role_specs.may_be(each, "example.com/fpga=0") for each in holders["held"]] == [True, False]


def test_a_kind_that_moves_between_a_resource_and_a_template_has_one_file():
    """Runtimes drop a device that two files of a directory define."""
    ours, own = "node-device-plugin_example.com_fpga.json", "node-devices_example.com_fpga.json"
    resource_of_kind = {
        "name": "example.com/fpga",
        "devices": [{"id": name, "nodes": [{"path": f"/dev/fpga{name}"}]} for name in ("0", "1")],
    }
    (spec,) = read(resource_of_kind).values()
    before = node(file(f"/etc/cdi/{ours}", cdi.serialise(spec)), ours=(f"/etc/cdi/{ours}",))
    moved = made(before, NEEDS_FPGA, templates=TEMPLATES)
    assert [leftover.name for leftover in moved.leftovers] == ["example.com/fpga=1"]
    written = moved.to_write(moved.leftovers)
    assert (devices(written[ours]), devices(written[own])) == (["1"], ["0"])
    assert moved.redefined() == {}
    back = made(
        node(file(f"/etc/cdi/{own}", OWN), ours=(f"/etc/cdi/{own}",)),
        {**resource_of_kind, "devices": [{"id": "0", "nodes": [{"path": "/dev/other"}]}]},
    )
    assert back.leftovers == []
    assert list(back.redefined().values()) == [("/dev/fpga0", "/dev/other")]


def test_an_id_may_have_what_stands_before_a_share_s_number():
    wanted = made(node_with(resource("a::b", "c::0", "d")), resource("d"))
    held = [
        {"resource": "example.com/camera", "device": device, "namespace": "default", "pod": "viewer"}
        for device in ("a::b", "c::0")
    ]
    staying = wanted.must_stay(answer(*held), advertised_counts=True)
    assert [each.device for each in staying] == ["a::b", "c::0"]


def test_a_pod_that_holds_the_same_id_of_another_declared_resource_counts_not():
    other = {"name": "example.com/other", "devices": [{"id": "a", "nodes": [{"path": "/dev/a"}]}]}
    wanted = made(node_with(resource("a")), other)
    holder = {"device": "a", "namespace": "default", "pod": "p"}
    assert wanted.must_stay(answer({**holder, "resource": "example.com/other"}), False) == []
    # A resource that nobody declares any more may be the leftover's.
    assert len(wanted.must_stay(answer({**holder, "resource": "example.com/former-name"}), False)) == 1


def test_a_held_device_keeps_what_its_kind_gave_it():
    before = resource("a", "b", edits={"env": ["OLD=1"]})
    wanted = made(node_with(before), resource("b", edits={"env": ["NEW=1"]}))
    spec = wanted.to_write(wanted.leftovers)[FILE]
    assert spec["containerEdits"] == {"env": ["NEW=1"]}
    assert spec["devices"][1]["name"] == "a"
    assert spec["devices"][1]["containerEdits"]["env"] == ["OLD=1"]
    assert spec["devices"][1]["containerEdits"]["deviceNodes"][0]["path"] == "/dev/a"


def test_specs_of_others_are_no_leftovers():
    foreign = file("/etc/cdi/vendor.json", json.dumps({"kind": "vendor.com/gpu", "devices": [{"name": "0"}]}))
    assert made(node(foreign)).leftovers == []


def foreign(path, edits, **rest):
    spec = {"cdiVersion": "0.5.0", "kind": "example.com/camera", "devices": [{"name": "a", "containerEdits": edits}]}
    # JSON is YAML, too.
    return file(path, json.dumps({**spec, **rest}))


@pytest.mark.parametrize(
    ("directory", "says"),
    [
        ("/etc/cdi", f"device example.com/camera=a: is also defined in {PATH}, and runtimes drop both: remove one"),
        ("/var/run/cdi", f"device example.com/camera=a: overrides the same name in {PATH}, so that containers get"),
    ],
)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_device_that_another_file_has_is_refused(directory, says, form):
    wanted = made(node(foreign(f"{directory}/other.{form}", {"env": ["A=B"]})), resource("a"))
    (line,) = refused(wanted)
    assert line.startswith(f"{directory}/other.{form}: {says}")
    assert line.endswith("; the file belongs to another owner: remove the entry there, or declare another name")


def test_a_device_that_another_file_gives_just_so_is_not():
    same = {"deviceNodes": [{"path": "/dev/a", "permissions": "rw"}]}
    assert refused(made(node(foreign("/var/run/cdi/other.json", same)), resource("a"))) == []
    # Nor does an empty list make a difference.
    assert refused(made(node(foreign("/var/run/cdi/other.json", {**same, "mounts": []})), resource("a"))) == []
    # Runtimes drop both, of two in one directory.
    assert len(refused(made(node(foreign("/etc/cdi/other.json", same)), resource("a")))) == 1
    # Nor does one that ours goes before.
    low = foreign("/opt/cdi/other.json", {"env": ["A=B"]})
    assert refused(made(node(low, file("/etc/cdi/x.json", "{}")), resource("a"))) == []


VENDOR = "/etc/cdi/nvidia.json"


def vendor(*names, version="0.6.0"):
    listed = [{"name": name, "containerEdits": {"env": [f"GPU={name}"]}} for name in names]
    return file(VENDOR, json.dumps({"cdiVersion": version, "kind": "nvidia.com/gpu", "devices": listed}))


def pair(**rest):
    device = {"id": "pair0", "cdi_devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"], **rest}
    return {"name": "example.com/pair", "devices": [device]}


FIX = (
    ", and example.com/pair=pair0 needs it: generate the vendor's spec, e.g. nvidia-ctk cdi generate "
    "--output=/etc/cdi/nvidia.yaml, or declare the device with required: false"
)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([vendor("0", "1")], []),
        ([vendor("0")], [f"nvidia.com/gpu=1 is in no valid CDI spec of the node{FIX}"]),
        ([], [f"nvidia.com/gpu={n} is in no valid CDI spec of the node{FIX}" for n in (0, 1)]),
        (
            [vendor("0", "1"), file("/etc/cdi/other.json", vendor("1").content)],
            [
                "nvidia.com/gpu=1 is in no valid CDI spec of the node (/etc/cdi/other.json and another file in its "
                f"directory both define this name){FIX}"
            ],
        ),
    ],
)
def test_a_device_of_another_spec_that_a_required_device_needs_must_be_there(files, says):
    assert list(made(node(*files), pair()).missing()) == says
    assert list(made(node(*files), pair(required=False)).missing()) == []


def test_two_names_of_one_device_are_one_device():
    listed = [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in ("0", "GPU-0")]
    both = file(VENDOR, json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": listed}))
    devices = [
        {"id": f"d{number}", "cdi_devices": [f"nvidia.com/gpu={name}"]} for number, name in enumerate(("0", "GPU-0"))
    ]
    wanted = made(node(both), {"name": "example.com/gpu", "devices": devices})
    assert list(wanted.missing()) == [
        "nvidia.com/gpu=GPU-0 of example.com/gpu=d1 is the same device as nvidia.com/gpu=0 of example.com/gpu=d0: "
        "declare it once"
    ]


def test_a_control_device_by_two_names_is_no_second_owner():
    """Each device has a device of its own beside it; and the order of nodes makes no other device."""
    nodes = [{"path": "/dev/ctl"}, {"path": "/dev/mem"}]
    listed = [
        *({"name": name, "containerEdits": {"env": [f"GPU={name}"]}} for name in ("0", "1")),
        {"name": "ctl", "containerEdits": {"deviceNodes": nodes}},
        {"name": "control", "containerEdits": {"deviceNodes": nodes[::-1], "mounts": []}},
    ]
    spec = file(VENDOR, json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": listed}))

    def missing(*pairs):
        devices = [
            {"id": f"d{number}", "cdi_devices": [f"nvidia.com/gpu={name}" for name in names]}
            for number, names in enumerate(pairs)
        ]
        return list(made(node(spec), {"name": "example.com/gpu", "devices": devices}).missing())

    assert missing(["0", "ctl"], ["1", "control"]) == []
    assert missing(["ctl"], ["control"]) == [
        "nvidia.com/gpu=control of example.com/gpu=d1 is the same device as nvidia.com/gpu=ctl of example.com/gpu=d0: "
        "declare it once"
    ]


def test_a_spec_of_another_program_that_the_runtime_refuses_has_no_devices():
    (first, _second) = made(node(vendor("0", "1", version="7.0.0")), pair()).missing()
    assert first.startswith("nvidia.com/gpu=0 is in no valid CDI spec of the node (/etc/cdi/nvidia.json: cdiVersion: ")


def test_a_broken_file_of_others_is_no_conflict_and_named():
    """What doctor says of it: a runtime leaves it out and goes on."""
    broken = foreign("/var/run/cdi/other.json", {"env": ["A=B"]}, colour="red")
    wanted = made(node(broken, file("/etc/cdi/x.yaml", "{"), file("/etc/cdi/y.json", None)), resource("a"))
    assert refused(wanted) == []
    assert [line.partition(": ")[0] for line in wanted.broken()] == [
        "/var/run/cdi/other.json",
        "/etc/cdi/x.yaml",
        "/etc/cdi/y.json",
    ]
    assert wanted.broken()[0].startswith("/var/run/cdi/other.json: colour: is not a field of CDI; known fields: ")
    assert wanted.broken()[0].endswith(
        "; the file belongs to another owner and affects no declared device: its owner has to fix it"
    )


def test_a_broken_file_of_a_declared_kind_costs_its_devices():
    """The run goes on, because optional and discovered devices may come later."""
    discovering = {"name": "example.com/gpu", "discover": {"cdi": {"kind": "nvidia.com/gpu"}}}
    for wanted in (pair(required=False), discovering):
        (line,) = made(node(vendor("0", version="7.0.0")), wanted).broken()
        assert line.startswith("/etc/cdi/nvidia.json: cdiVersion: ")
        assert line.endswith(
            "; the declaration uses devices of its kind nvidia.com/gpu, which containers do not get: let the vendor's "
            "program generate the spec again"
        )


def test_a_name_that_runtimes_read_differently():
    text = "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices: [{name: %s, containerEdits: {env: [A=b], hooks: [%s]}}]"
    hook = "{hookName: prestart, path: /x, args: [%s]}"
    unclear = file("/etc/cdi/nvidia.yaml", text % ("010", hook % "a"))
    wanted = {"name": "example.com/gpu", "devices": [{"id": "a", "cdi_devices": ["nvidia.com/gpu=010"]}]}
    (missing,) = made(node(unclear), wanted).missing()
    assert "nvidia.com/gpu=010 is in no valid CDI spec of the node (/etc/cdi/nvidia.yaml: devices[0].name: " in missing
    (line,) = made(node(unclear), wanted).broken()
    assert "reads '8'" in line
    assert "which containers do not get: let the vendor's program generate the spec again" in line
    # An argument that differs costs no device.
    differs = file("/etc/cdi/nvidia.yaml", text % ('"010"', hook % "0660"))
    assert list(made(node(differs), wanted).missing()) == []
    (line,) = made(node(differs), wanted).broken()
    assert "quote the text; the file belongs to another owner and affects no declared device" in line


def test_of_several_problems_of_a_file_the_first_is_named_and_the_others_are_counted():
    broken = foreign("/var/run/cdi/other.json", {"env": ["A=B"]}, colour="red", shape="round", size="large")
    (line,) = made(node(broken), resource("a")).broken()
    assert line.startswith("/var/run/cdi/other.json: colour: is not a field of CDI")
    assert " (and 2 more); the file belongs to another owner" in line
    two = foreign("/var/run/cdi/other.json", {"env": ["A=B"]}, colour="red", shape="round")
    (line,) = made(node(two), resource("a")).broken()
    assert " (and 1 more); the file belongs to another owner" in line


def test_what_the_runtime_would_refuse_is_refused():
    wanted = made(node(version="1.7.12"), resource("a", edits={"additional_gids": [5]}))
    (line,) = refused(wanted)
    assert re.search(r"additional gids .* needs CDI 0.7.0, and containerd 1.7.12 accepts", line)
    assert refused(made(node(version="1.7.24"), resource("a", edits={"additional_gids": [5]}))) == []
    # Other runtimes' versions are no containerd's, and may be unknown.
    for name, version in (("crio", "1.7.12"), ("crio", None), ("dockerd", "1.7.12"), ("containerd", None)):
        assert refused(made(node(version=version, name=name), resource("a", edits={"additional_gids": [5]}))) == []


def test_a_runtime_that_does_not_run_stops_no_uninstall():
    wanted = made(node_with(resource("a"))._replace(runtime=role_specs.Runtime()))
    assert refused(wanted) == []
    assert wanted.to_write([]) == {}


def discovering(**rest):
    return resource("a", discover={"paths": ["/dev/camera*"]}, **rest)


def test_a_resource_that_gains_discover_has_no_spec_of_the_role_any_more():
    """The plugin writes the kind in /var/run/cdi before it offers a device, so that it is offered counts not."""
    wanted = made(node_with(resource("a", "b")), discovering())
    assert [leftover.device for leftover in wanted.leftovers] == ["a", "b"]
    viewer = {"resource": "example.com/camera", "device": "b", "namespace": "default", "pod": "viewer"}
    holders = answer(viewer, allocatable={"example.com/camera": ["a", "b"]})
    staying = wanted.must_stay(holders, advertised_counts=True)
    assert [(held.device, held.reason) for held in staying] == [("b", "held by default/viewer")]
    assert devices(wanted.to_write(staying)[FILE]) == ["b"]
    assert wanted.to_write([]) == {}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"container_edits": {"additional_gids": [5]}}, "example.com/camera: additional gids (containerEdits) needs"),
        ({"cdi_kind": "example.com/x.y"}, "example.com/x.y: a '.' in the class (kind) needs"),
    ],
)
def test_what_the_runtime_would_refuse_of_what_the_plugin_will_write_is_refused(more, says):
    declared = {"name": "example.com/camera", "discover": {"pci": [{"vendor": "10de"}]}, **more}
    assert [line.partition(" CDI ")[0] for line in refused(made(node(version="1.7.2"), declared))] == [says]
    assert refused(made(node(version="2.1.9"), declared)) == []


def test_a_held_name_does_not_become_another_device():
    """Two devices that change places, while a pod has one of them."""
    changed = resource("a", "b", "c")
    (a, b, _c) = changed["devices"]
    a["nodes"], b["nodes"] = b["nodes"], a["nodes"]
    wanted = made(node_with(resource("a", "b", "c")), changed)
    assert sorted(wanted.redefined()) == ["example.com/camera=a", "example.com/camera=b"]
    held = {"resource": "example.com/camera", "namespace": "default", "pod": "viewer"}
    assert wanted.held_otherwise(answer({**held, "device": "a"}, {**held, "device": "c"})) == [
        "example.com/camera=a is held by default/viewer and would become another device (/dev/b instead of /dev/a): "
        "declare the new device with another id, or end the pod first"
    ]
    assert wanted.held_otherwise(answer({**held, "device": "c"})) == []
    # Another variable is no other device.
    assert made(node_with(resource("a")), resource("a", edits={"env": ["X=1"]})).redefined() == {}


@pytest.mark.parametrize(("common", "own"), [({"closID": "a"}, None), (None, {"closID": "a"}), (None, None)])
def test_an_edit_of_a_kept_device_may_be_null(common, own):
    edits = {"intelRdt": own, "env": ["A=1"]}
    before = {"cdiVersion": "0.7.0", "kind": "example.com/camera", "containerEdits": {"intelRdt": common}}
    before["devices"] = [{"name": "old", "containerEdits": edits}]
    wanted = made(node(file(PATH, json.dumps(before))), resource("new"))
    _new, old = wanted.to_write(wanted.leftovers)[FILE]["devices"]
    rdt = common or own
    assert old["containerEdits"] == {"env": ["A=1"], **({"intelRdt": rdt} if rdt else {})}


@pytest.mark.parametrize(
    "text",
    [
        # Ten aliases of ten aliases, and so on: 10^9 devices.
        "kind: a.example/b\ndevices:\n"
        + "".join(f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10 if n else ['x'] * 10)}]\n" for n in range(9)),
        '{"kind": ["a.example/b"], "devices": []}',
        '{"kind": "a.example/b", "devices": [{"name": 7}]}',
        '{"kind": "a.example/b", "devices": [{"name": "a", "containerEdits": {"deviceNodes": ["/dev/a"]}}]}',
        '{"kind": "a.example/b", "devices": ["a"]}',
        '{"kind": "a.example/b", "devices": 7}',
        '{"kind": "a.example/b", "devices": [{"name": "a", "containerEdits": ["a"]}]}',
        '{"devices": []}',
        "[]",
        "[" * 100_000,
    ],
)
def test_a_file_of_ours_that_a_node_changed_is_no_spec(text):
    assert role_specs.read_spec(text.encode()) is None


@pytest.mark.parametrize(
    ("name", "version", "crashes"),
    [("containerd", "2.3.7", True), ("containerd", "2.4.0", False), ("cri-o", "1.34.0", True), (None, None, True)],
)
def test_a_kind_of_one_letter_crashes_no_newer_containerd(name, version, crashes):
    foreign = file("/etc/cdi/x.json", json.dumps({"cdiVersion": "0.6.0", "kind": "vendor.com/x", "devices": []}))
    assert bool(made(node(foreign, name=name, version=version)).crashing()) == crashes


def test_a_file_that_crashes_the_runtime_is_named_with_its_fix():
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "vendor.com/x",
        "devices": [{"name": "a", "containerEdits": {"env": ["A=b"]}}],
    }
    crash = made(node(file("/opt/cdi/x y.json", json.dumps(spec))))
    assert crash.crashing() == [
        "/opt/cdi/x y.json: kind: the CDI class 'x' has fewer than two characters, which crashes containerd's parser: "
        "choose a longer name; with CDI on, the container runtime would not start: move the file elsewhere, e.g. mv "
        "'/opt/cdi/x y.json' /root/, until its owner has fixed it"
    ]
    assert refused(crash) == []
    (line,) = crash.broken()
    assert line.endswith("a container runtime with CDI would not start: its owner has to fix the file")


def test_a_spec_that_stays_keeps_the_order_of_its_keys():
    text = json.dumps(
        {"cdiVersion": "0.6.0", "kind": "a.io/b", "devices": [{"name": "x", "containerEdits": {"env": ["A=b"]}}]}
    )
    (spec,) = made(node(file(PATH, text))).present.values()
    assert json.dumps(spec) == text


def written(directory, name, content, mode=0o644):
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(mode)
    return str(path)


def judged(directory, accepted):
    return role_specs.Specs([], {}, role_specs.find([str(directory)], [], accepted), role_specs.Runtime())


def of_kind(kind):
    return {"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": "x", "containerEdits": {"env": ["A=b"]}}]}


def test_each_file_of_a_node_is_the_role_s_or_another_owner_s_or_the_running_plugin_s(tmp_path, monkeypatch):
    static, dynamic, vendors = (tmp_path / name for name in ("cdi", "run", "opt"))
    monkeypatch.setattr(role_specs, "DIRECTORY", str(static))
    ours = written(static, FILE, of_kind("a.io/ours"))
    # With the role's prefix, but not in the ledger.
    copied = written(static, "node-device-plugin_copied.json", of_kind("a.io/copied"))
    written(dynamic, "node-device-plugin_a.io_found.json", of_kind("a.io/found"))
    vendor = written(vendors, "vendor.yaml", of_kind("a.io/vendor"))
    (vendors / "directory.json").mkdir()
    written(vendors, "notes.txt", "no spec")
    directories_in_order = [str(vendors), str(static), str(tmp_path / "missing"), str(dynamic)]
    found = role_specs.find(directories_in_order, [ours, str(static / "gone.json")], None)
    assert found.present == {FILE: of_kind("a.io/ours")}
    assert list(found.others) == directories_in_order
    assert [[(file.path, file.owner) for file in files] for files in found.others.values()] == [
        [(vendor, "foreign")],
        [(copied, "foreign")],
        [],
        [],
    ]


def test_of_a_directory_that_is_listed_twice_the_last_place_counts(tmp_path):
    first, second = (written(tmp_path / name, "vendor.yaml", of_kind("a.io/vendor")) for name in "ab")
    found = role_specs.find([f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/a/"], [], None)
    assert [file.path for files in found.others.values() for file in files] == [second, first]


def test_a_file_that_not_everybody_can_read_is_no_problem_because_runtimes_run_as_root(tmp_path, monkeypatch):
    monkeypatch.setattr(role_specs, "DIRECTORY", str(tmp_path))
    written(tmp_path, "vendor.json", of_kind("a.io/vendor"), mode=0o600)
    wanted = judged(tmp_path, None)
    assert (wanted.broken(), wanted.crashing()) == ([], [])


def test_the_accepted_version_decides_about_other_owners_files(tmp_path, monkeypatch):
    monkeypatch.setattr(role_specs, "DIRECTORY", str(tmp_path))
    written(tmp_path, "vendor.json", of_kind("a.io/vendor"))
    for accepted, number in (("0.5.0", 1), ("0.6.0", 0), (None, 0)):
        assert len(judged(tmp_path, accepted).broken()) == number


@pytest.mark.parametrize("content", ["{", "kind: 2026-01-01", '{"kind": "a.io/b", "devices": [2026-01-01]}'])
def test_a_file_of_the_role_that_is_no_spec_any_more_counts_as_missing(tmp_path, monkeypatch, content):
    monkeypatch.setattr(role_specs, "DIRECTORY", str(tmp_path))
    ours = written(tmp_path, FILE, content)
    found = role_specs.find([str(tmp_path)], [ours], None)
    assert (found.present, found.others) == ({}, {str(tmp_path): []})


def test_a_file_of_the_role_that_someone_made_yaml_still_has_its_devices():
    text = "kind: a.io/b\ndevices: [{name: x, containerEdits: {deviceNodes: null}}, {name: y, containerEdits: null}]"
    assert [device["name"] for device in role_specs.read_spec(text.encode())["devices"]] == ["x", "y"]
    assert role_specs.read_spec(b"kind: a.io/b\ndevices: null") == {"kind": "a.io/b", "devices": None}


def test_a_foreign_file_at_the_path_of_a_declared_spec_counts_as_replaced():
    taken = foreign(PATH, {"env": ["A=B"]})
    assert refused(made(node(taken, ours=()), resource("a"))) == []
    assert len(refused(made(node(taken._replace(path="/etc/cdi/x.json")), resource("a")))) == 1


def test_the_problems_of_a_replaced_file_are_those_of_the_declared_spec():
    """Another file of the directory has the name, too: it alone belongs to another owner."""
    taken, other = foreign(PATH, {"env": ["A=B"]}), foreign("/etc/cdi/other.json", {"env": ["A=B"]})
    (line,) = refused(made(node(taken, other, ours=()), resource("a")))
    assert line.startswith(f"/etc/cdi/other.json: device example.com/camera=a: is also defined in {PATH}, and runtimes")


def test_a_kept_device_without_edits_is_compared_as_any_other():
    text = "kind: example.com/camera\ndevices: [{name: old, containerEdits: null}, {name: older}]"
    wanted = made(node(file(PATH, text), foreign("/var/run/cdi/other.json", {"env": ["A=B"]})), resource("b"))
    assert [leftover.device for leftover in wanted.leftovers] == ["old", "older"]
    assert wanted.refused(wanted.to_write(wanted.leftovers)) == []
    assert wanted.redefined() == {}


def test_an_empty_directory_of_the_role_keeps_its_place():
    """A later directory takes precedence, and the role's directory may be the later one."""
    low = foreign("/opt/cdi/other.json", {"env": ["A=B"]})
    (found, runtime) = node(low)
    for others, number in (({**found.others, "/etc/cdi": []}, 0), ({"/etc/cdi": [], **found.others}, 1)):
        wanted = made(Node(found._replace(others=others), runtime), resource("a"))
        assert len(refused(wanted)) == number
