"""Health, on real device nodes, real spec files and real commands."""

import asyncio
import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from node_device_plugin.cdi import reader, resolution
from node_device_plugin.declaration import DeclarationError, Device, Resource, cdi, parse_resources
from node_device_plugin.devices.health import Health, cdi_names, checks, unhealthy_reason, user_commands
from node_device_plugin.devices.health.cdi_names import CdiNames
from node_device_plugin.devices.health.nodes import open_problem
from node_device_plugin.devices.table import UNANSWERED


def resource(*nodes: dict[str, Any], **keys: Any) -> Resource:
    devices = [{"id": "d%d" % number, "nodes": [node]} for number, node in enumerate(nodes)]
    (made,) = parse_resources([{"name": "example.com/dev", "devices": devices, **keys}])
    return made


def device(path: Any, **keys: Any) -> Device:
    return resource({"path": "/dev/d", "host_path": str(path), **keys}).devices[0]


def test_a_device_node_that_is_there_is_healthy() -> None:
    assert unhealthy_reason(device("/dev/null")) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")
def test_a_block_device_is_one_too(tmp_path: Path) -> None:
    os.mknod(tmp_path / "block", stat.S_IFBLK | 0o600, os.makedev(7, 250))
    assert unhealthy_reason(device(tmp_path / "block")) is None
    assert unhealthy_reason(device(tmp_path / "block", type="c")) == (
        "%s: expected c any:any, found b 7:250" % (tmp_path / "block")
    )


def test_the_reason_names_the_path(tmp_path: Path) -> None:
    assert unhealthy_reason(device(tmp_path / "none")) == "%s: No such file or directory" % (tmp_path / "none")
    (tmp_path / "file").touch()
    assert unhealthy_reason(device(tmp_path / "file")) == "%s: not a device node" % (tmp_path / "file")


def test_a_node_has_the_expected_type_and_numbers() -> None:
    """Complaint 7: what a path leads to changes under a stable id."""
    assert unhealthy_reason(device("/dev/null", type="c", major=1, minor=3)) is None
    assert unhealthy_reason(device("/dev/zero", major=1, minor=3)) == "/dev/zero: expected any 1:3, found c 1:5"


def test_an_open_probe_asks_for_what_a_container_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_problem(device("/dev/null")) is None
    asked: list[int] = []

    def refuse(error: int) -> Callable[..., int]:
        def opened(path: str, flags: int) -> int:
            asked.append(flags & os.O_ACCMODE)
            raise OSError(error, os.strerror(error))

        return opened

    monkeypatch.setattr(os, "open", refuse(6))
    for permissions in ("r", "w", "rwm"):
        found = open_problem(device("/dev/null", permissions=permissions))
        assert found == "/dev/null: cannot be opened: No such device or address"
    assert asked == [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
    # In use by a container: healthy.
    monkeypatch.setattr(os, "open", refuse(16))
    assert open_problem(device("/dev/null")) is None


async def test_a_device_that_cannot_be_opened_is_unhealthy_where_the_probe_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str, flags: int) -> int:
        raise OSError(6, os.strerror(6))

    monkeypatch.setattr(os, "open", refuse)
    node = {"path": "/dev/d", "host_path": "/dev/null"}
    health = Health(lambda: None)
    assert await checked(health, resource(node), ()) == {"d0": None}
    said = "/dev/null: cannot be opened: No such device or address"
    assert await checked(health, resource(node, health={"open": True}), ()) == {"d0": said}


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"health": {"open": True}, "devices": [{"id": "d"}], "env": {"D": "x"}}, "devices[0] (d).nodes"),
        (
            {"health": {"open": True}, "devices": [{"id": "d", "nodes": [{"path": "/dev/d", "permissions": "m"}]}]},
            "devices[0] (d).nodes[0].permissions",
        ),
        ({"health": {"period": 9}}, "health.command"),
        ({"health": {"command": ["check"]}}, "health.command[0]"),
    ],
)
def test_a_probe_that_cannot_work_is_refused(keys: dict[str, Any], where: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_resources([{"name": "example.com/dev", **keys}])
    assert [problem.where for problem in caught.value.problems] == ["resources[0] (example.com/dev)." + where]


async def test_a_check_that_hangs_holds_up_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def look(device: Device) -> Optional[str]:
        if device.nodes[0].host_path == "/dev/hangs":
            release.wait(60)
        if device.nodes[0].host_path == "/dev/fails":
            raise ValueError("x")
        return None

    monkeypatch.setattr("node_device_plugin.devices.health.checks.unhealthy_reason", look)
    health = Health(lambda: None, limit=2)
    devices = [{"id": name, "nodes": [{"path": "/dev/" + name}]} for name in ("a", "hangs", "b", "fails")]
    (one,) = parse_resources([{"name": "example.com/dev", "devices": devices}])
    expected = {
        "a": None,
        "hangs": "the check did not answer in 2 s",
        "b": None,
        "fails": "the check failed: ValueError('x')",
    }
    for _ in range(2):
        assert await checked(health, one, ()) == expected
    release.set()
    for _ in range(200):
        if (await checked(health, one, ()))["hangs"] is None:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("what is back is still called hanging")


async def checked(health: Health, resource: Resource, spec_dirs: Sequence[str]) -> dict[str, Optional[str]]:
    return (await health.check([resource], spec_dirs))[resource.name]


RESOURCE = resource({"path": "/dev/d", "host_path": "/dev/null"}, {"path": "/dev/e", "host_path": "/dev/zero"})
(FILE,) = cdi.render_specs([RESOURCE])
SPEC = cdi.render_specs([RESOURCE])[FILE]


class Specs:
    """Two spec directories."""

    def __init__(self, folder: Path) -> None:
        self.static, self.dynamic = folder / "static", folder / "dynamic"
        self.static.mkdir()
        self.dynamic.mkdir()
        self.names = CdiNames([str(self.static), str(self.dynamic)])

    def problem(self, name: str = "example.com/dev=d0") -> str:
        self.names.read([name])
        return self.names.problem(name) or ""


def one(version: str = "0.5.0", device_id: str = "d0") -> str:
    devices = [{"name": device_id, "containerEdits": {"env": ["A=B"]}}]
    return json.dumps({"cdiVersion": version, "kind": "example.com/dev", "devices": devices})


def test_a_cdi_name_resolves_in_a_spec_that_is_there(tmp_path: Path) -> None:
    specs = Specs(tmp_path)
    both = "%s, %s" % (specs.static, specs.dynamic)
    assert specs.problem() == "the CDI name example.com/dev=d0 is in no valid spec of " + both
    (specs.static / FILE).write_text(cdi.serialise(SPEC))
    assert specs.problem() == ""
    assert specs.problem("example.com/dev=d2")
    (specs.static / FILE).unlink()
    assert specs.problem()
    (specs.dynamic / "foreign.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: example.com/dev\ndevices: [{name: d0, containerEdits: {env: [A=B]}}]\n"
    )
    assert specs.problem() == ""


def test_a_spec_that_runtimes_do_not_load_counts_for_nothing(tmp_path: Path) -> None:
    specs = Specs(tmp_path)
    for name, content in (("a.json", one(version="7.0.0")), ("a.json", "{"), ("a.yml", one())):
        for path in specs.static.iterdir():
            path.unlink()
        (specs.static / name).write_text(content)
        assert "is in no valid spec" in specs.problem()
    assert "a.yml: the file's name: does not end in" in specs.problem()


def test_of_a_spec_with_several_faults_the_reason_is_the_first(tmp_path: Path) -> None:
    """As ``cdi check`` names them: in the order of the file."""
    specs = Specs(tmp_path)
    wrong = {**json.loads(one()), "colour": "red", "shape": "round"}
    (specs.static / "a.json").write_text(json.dumps(wrong))
    assert "/a.json: colour: is not a field of CDI" in specs.problem()


def test_two_files_of_a_directory_drop_a_device_and_a_later_directory_overrides(tmp_path: Path) -> None:
    specs = Specs(tmp_path)
    (specs.static / "a.json").write_text(one())
    (specs.dynamic / "b.json").write_text(one())
    assert specs.problem() == ""
    (specs.static / "c.json").write_text(one())
    assert "another file in its directory both define this name" in specs.problem()


def foreign(**edits: Any) -> str:
    devices = [{"name": "0", "containerEdits": {"env": ["A=B"], **edits}}]
    common = {"deviceNodes": [{"path": "/dev/ctl", "hostPath": "/dev/zero"}]}
    return json.dumps({"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": devices, "containerEdits": common})


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({}, None),
        ({"deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/null"}]}, None),
        ({"deviceNodes": [{"path": "/dev/gpu-of-nobody"}]}, "/dev/gpu-of-nobody: the device node"),
        ({"deviceNodes": [{"path": "/dev/null", "hostPath": "/dev/gpu-of-nobody"}]}, "/dev/gpu-of-nobody: the device"),
        # The runtime makes a node of these numbers, without a look at the host's path.
        ({"deviceNodes": [{"path": "/dev/no", "type": "c", "major": 1, "minor": 3}]}, None),
        ({"deviceNodes": [{"path": "/dev/null", "type": "c", "major": 1, "minor": 3}]}, None),
        ({"deviceNodes": [{"path": "/dev/no", "type": "c", "major": 4095, "minor": 77}]}, "/dev/no: the device node"),
        # Without a path on the host, the path is the container's.
        ({"deviceNodes": [{"path": "/dev/null", "type": "c", "major": 1, "minor": 5}]}, None),
        # Some drivers have no device in sysfs: 1 is the major number of memory devices.
        ({"deviceNodes": [{"path": "/dev/no", "type": "c", "major": 1, "minor": 250}]}, None),
        (
            {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 5}]},
            "/dev/null: the device node",
        ),
        (
            {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/null", "type": "b", "major": 1, "minor": 3}]},
            "/dev/null: the device node",
        ),
        ({"deviceNodes": [{"path": "/dev/pipe", "type": "p"}]}, None),
        ({"deviceNodes": [{"path": "/dev/\0"}]}, "/dev/\0: the device node"),
        ({"mounts": [{"hostPath": "/\0", "containerPath": "/a"}]}, "/\0: the mount"),
        # A directory is no device node, and runtimes follow no link.
        ({"deviceNodes": [{"path": "/dev/shm"}]}, "/dev/shm: the device node"),
        ({"deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/stdin"}]}, "/dev/stdin: the device node"),
        ({"hooks": [{"hookName": "createContainer", "path": "/usr/bin/no-hook"}]}, "/usr/bin/no-hook: the hook"),
        ({"hooks": [{"hookName": "createContainer", "path": "/bin/true"}]}, None),
        (
            {"mounts": [{"hostPath": "/usr/lib/no-such.so.1", "containerPath": "/a"}]},
            "/usr/lib/no-such.so.1: the mount",
        ),
        ({"mounts": [{"hostPath": "/usr/lib", "containerPath": "/a", "options": ["ro", "bind"]}]}, None),
        ({"mounts": [{"hostPath": "tmpfs", "containerPath": "/a", "type": "tmpfs"}]}, None),
        ({"mounts": [{"hostPath": "/no-such", "containerPath": "/a", "type": ""}]}, "/no-such: the mount"),
        # Only a bind mount has a source on the host.
        ({"mounts": [{"hostPath": "/no-such", "containerPath": "/a", "type": "tmpfs"}]}, None),
        ({"mounts": [{"hostPath": "no-such", "containerPath": "/a"}]}, None),
        # The service's sandbox hides this one.
        ({"mounts": [{"hostPath": "/run/nvidia-persistenced/socket", "containerPath": "/a"}]}, None),
        ({"mounts": [{"hostPath": "/etc/kubernetes/no-such", "containerPath": "/a"}]}, None),
    ],
)
def test_a_device_of_another_spec_needs_the_host_paths_that_the_spec_names(
    tmp_path: Path, edits: dict[str, Any], says: Optional[str]
) -> None:
    """After an upgrade of the driver, containers with a stale spec do not start."""
    specs = Specs(tmp_path)
    (specs.dynamic / "vendor.json").write_text(foreign(**edits))
    found = specs.problem("vendor.com/gpu=0")
    if says is None:
        assert found == ""
    else:
        assert found.startswith(says)
        assert re.search(
            r"of its CDI spec (does not exist|is no device node|is not the device \S+), so (no container with "
            r"vendor\.com/gpu=0 starts|vendor\.com/gpu=0 does not work in a container): generate the spec again$",
            found,
        )
        # A container with a number that the spec gives starts.
        assert ("does not work" in found) is any(node.get("type") for node in edits.get("deviceNodes", ()))


@pytest.mark.parametrize(
    ("node", "says"),
    [
        # nvidia-ctk writes numbers without a type: a container gets a node of these numbers.
        ({"path": "/dev/null", "major": 1, "minor": 3}, None),
        ({"path": "/dev/null", "major": 1, "minor": 5}, "is not the device 1:5, so vendor.com/gpu=0 does not work"),
        ({"path": "/dev/null", "major": 4095}, "is not the device 4095:0, so vendor.com/gpu=0 does not work"),
        (
            {"path": "/dev/a", "hostPath": "/dev/null", "major": 1, "minor": 5},
            "is not the device 1:5, so vendor.com/gpu=0 does not work",
        ),
        # Runtimes read the type from the path, whatever the numbers are.
        ({"path": "/dev/no", "major": 1, "minor": 3}, "does not exist, so no container with vendor.com/gpu=0 starts"),
        ({"path": "/dev/shm", "major": 1, "minor": 3}, "is no device node, so no container"),
        ({"path": "/dev/null", "minor": 77}, None),
        ({"path": "/dev/null", "type": "c"}, None),
        ({"path": "/dev/null", "type": "c", "minor": 5}, None),
        ({"path": "/dev/null", "type": "b"}, "is not the device block, so no container with vendor.com/gpu=0 starts"),
        ({"path": "/dev/null", "type": "u"}, "is not the device u, so no container with vendor.com/gpu=0 starts"),
        ({"path": "/dev/no", "type": "c"}, "does not exist, so no container"),
        ({"path": "/dev/no", "type": "u", "major": 1, "minor": 3}, None),
    ],
)
def test_what_a_spec_leaves_out_of_a_node_is_read_from_the_host(
    tmp_path: Path, node: dict[str, Any], says: Optional[str]
) -> None:
    """As in the CDI library (fillMissingInfo): it reads the type or the numbers, and compares what it read."""
    specs = Specs(tmp_path)
    (specs.dynamic / "vendor.json").write_text(foreign(deviceNodes=[node]))
    found = specs.problem("vendor.com/gpu=0")
    if says is None:
        assert found == ""
    else:
        assert found.startswith(f"{node.get('hostPath') or node['path']}: the device node of its CDI spec {says}")


def test_a_pipe_has_no_numbers_but_a_type(tmp_path: Path) -> None:
    specs, pipe = Specs(tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)
    given = {"major": 226}, {"type": "c"}, {"type": "c", "major": 226}, {"type": "b", "major": 226}
    found = []
    for more in given:
        node = {"path": "/dev/a", "hostPath": str(pipe), **more}
        (specs.dynamic / "vendor.json").write_text(foreign(deviceNodes=[node]))
        found.append(specs.problem("vendor.com/gpu=0").partition(" spec ")[2].partition(", so")[0])
    assert found == ["", "is not the device char", "is not the device char/226:0", "is not the device block/226:0"]


def test_a_device_of_ours_needs_what_its_mounts_and_hooks_name(tmp_path: Path) -> None:
    mount = {"hostPath": "/no-such", "containerPath": "/a", "options": ["rbind"]}
    edits = {"deviceNodes": [{"path": "/dev/checked-elsewhere"}], "mounts": [mount]}
    specs = Specs(tmp_path)
    starts = "/no-such: the mount of its CDI spec does not exist, so no container with vendor.com/gpu=0 starts: "
    for name, fix in (
        (FILE, "create it, or change the declaration"),
        ("node-devices_vendor.com_gpu.json", "create it, or change the template in cdi_specs_templates"),
    ):
        (specs.static / name).write_text(foreign(**(edits if name == FILE else {"mounts": [mount]})))
        assert specs.problem("vendor.com/gpu=0") == starts + fix
        (specs.static / name).unlink()


def test_paths_that_the_sandbox_hides_or_cannot_read_are_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, library, loop = tmp_path / "hidden", tmp_path / "library.so", tmp_path / "loop"
    monkeypatch.setattr(cdi_names, "_HIDDEN", (str(hidden),))
    specs = Specs(tmp_path)

    def problem(path: Path) -> str:
        mounts = [{"hostPath": str(path), "containerPath": "/a", "options": ["bind"]}]
        (specs.dynamic / "vendor.json").write_text(foreign(mounts=mounts))
        return specs.problem("vendor.com/gpu=0")

    library.symlink_to(hidden / "library.so.1")
    assert problem(library) == ""
    library.unlink()
    library.symlink_to(tmp_path / "gone" / "library.so.1")
    assert problem(library).startswith(f"{library}: the mount of its CDI spec does not exist")
    # Any other error may be the plugin's alone, such as a directory that its user cannot read.
    loop.symlink_to(loop)
    assert problem(loop / "library.so") == ""


def test_devices_of_specs_that_nobody_needs_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small spec may give thousands of devices the same thousands of nodes."""
    looked: list[Any] = []
    paths = resolution.host_paths
    monkeypatch.setattr(resolution, "host_paths", lambda edits: (looked.append(edits), paths(edits))[1])
    (tmp_path / FILE).write_text(json.dumps(SPEC))
    names = CdiNames([str(tmp_path)])
    for _again in range(2):
        names.read(["example.com/dev=d0", "example.com/dev=d1"])
        assert names.problem("example.com/dev=d1") is None
    d1 = next(device for device in SPEC["devices"] if device["name"] == "d1")
    assert looked == [d1["containerEdits"], SPEC.get("containerEdits", {})]


async def test_a_mount_that_hangs_costs_only_the_resources_that_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many devices have it: a file server that is dead must not use up all threads."""
    hangs, status = threading.Event(), os.stat
    monkeypatch.setattr(os, "stat", lambda path, **keys: hangs.wait() if path == "/nfs" else status(path, **keys))
    of_mount = [
        {
            "name": f"example.com/mount{number}",
            "container_edits": {"mounts": ["/nfs:/nfs"]},
            "devices": [{"id": f"d{number}-{each}", "nodes": ["/dev/null"]} for each in range(8)],
        }
        for number in range(5)
    ]
    declared = parse_resources([*of_mount, {"name": "example.com/other", "devices": ["/dev/zero"]}])
    for file, spec in cdi.render_specs(declared).items():
        (tmp_path / file).write_text(json.dumps(spec))
    health = Health(on_news=lambda: None, limit=0.3)
    found = await health.check(declared, [str(tmp_path)])
    hangs.set()
    assert set(found.pop("example.com/other").values()) == {None}
    assert {reason for reasons in found.values() for reason in reasons.values()} == {
        "the check did not answer in 0.3 s"
    }


def test_a_pod_does_not_judge_host_paths_that_it_cannot_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    specs = Specs(tmp_path)
    hooks = [{"hookName": "createContainer", "path": "/usr/bin/no-hook"}]
    (specs.dynamic / "vendor.json").write_text(foreign(hooks=hooks))
    assert specs.problem("vendor.com/gpu=0") == ""
    (specs.dynamic / "vendor.json").write_text(foreign(deviceNodes=[{"path": "/dev/gpu-of-nobody"}]))
    assert specs.problem("vendor.com/gpu=0").startswith("/dev/gpu-of-nobody: ")


async def test_a_device_is_unhealthy_while_one_of_its_names_does_not_resolve(tmp_path: Path) -> None:
    names = ["vendor.com/gpu=0", "vendor.com/gpu=1"]
    (declared,) = parse_resources([{"name": "example.com/gpu", "devices": [{"id": "pair", "cdi_devices": names}]}])
    (tmp_path / "vendor.json").write_text(foreign())
    health = Health(lambda: None)
    reason = (await checked(health, declared, [str(tmp_path)]))["pair"]
    assert reason == f"the CDI name vendor.com/gpu=1 is in no valid spec of {tmp_path}"
    (tmp_path / "vendor.json").write_text(
        foreign().replace('"devices": [', '"devices": [{"name": "1", "containerEdits": {"env": ["A=C"]}}, ')
    )
    assert await checked(health, declared, [str(tmp_path)]) == {"pair": None}


def test_a_spec_of_others_that_overrides_ours_names_both(tmp_path: Path) -> None:
    specs = Specs(tmp_path)
    ours, theirs = specs.static / FILE, specs.dynamic / "foreign.json"
    ours.write_text(cdi.serialise(SPEC))
    theirs.write_text(one())
    assert specs.problem() == (
        "%s: device example.com/dev=d0: overrides the same name in %s, so that containers get the device of this file"
        % (theirs, ours)
    )
    assert specs.problem("example.com/dev=d1") == ""
    # The very same edits take nothing from anybody, wherever they stand in the spec.
    common, (device, *_) = {"env": ["A=B"]}, SPEC["devices"]
    ours.write_text(json.dumps({**SPEC, "containerEdits": common}))
    theirs.write_text(
        json.dumps({**SPEC, "devices": [{**device, "containerEdits": {**common, **device["containerEdits"]}}]})
    )
    assert specs.problem() == ""
    # Nor do edits that are empty.
    theirs.write_text(json.dumps({**SPEC, "containerEdits": {**common, "mounts": []}}))
    assert specs.problem() == ""
    # A file that is not loaded overrides nothing.
    theirs.write_text(one(version="7.0.0"))
    assert specs.problem() == ""
    # Nor can ours be lost without a word, where theirs has its name.
    theirs.write_text(one())
    ours.write_text(cdi.serialise({**SPEC, "cdiVersion": "7.0.0"}))
    assert "overrides the same name in %s" % ours in specs.problem()


def test_the_highest_directory_decides_whose_device_it_is(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("low", "middle", "high")]
    for place in places:
        place.mkdir()
    (places[0] / FILE).write_text(cdi.serialise(SPEC))
    (places[1] / "foreign.json").write_text(one())
    (places[2] / FILE).write_text(cdi.serialise(SPEC))
    names = CdiNames([str(place) for place in places])
    names.read(["example.com/dev=d0"])
    assert names.problem("example.com/dev=d0") is None
    (places[2] / FILE).unlink()
    names.read(["example.com/dev=d0"])
    assert "overrides the same name in %s" % (places[0] / FILE) in (names.problem("example.com/dev=d0") or "")


async def test_all_of_it_together(tmp_path: Path) -> None:
    health = Health(on_news=lambda: None)
    found = await checked(health, RESOURCE, [str(tmp_path)])
    assert found == {
        name: "the CDI name example.com/dev=%s is in no valid spec of %s" % (name, tmp_path) for name in ("d0", "d1")
    }
    (tmp_path / FILE).write_text(cdi.serialise(SPEC))
    assert await checked(health, RESOURCE, [str(tmp_path)]) == {"d0": None, "d1": None}
    assert await checked(health, RESOURCE, []) == {"d0": None, "d1": None}


async def test_a_command_of_the_user(tmp_path: Path) -> None:
    news = asyncio.Event()
    health = Health(on_news=news.set)
    script = 'test -e "%s/$DEVICE_ID" || { echo too hot >&2; exit 1; }' % tmp_path
    command = {"command": ["/bin/sh", "-c", script], "period": 1, "timeout": 5}
    asked = resource({"path": "/dev/d", "host_path": "/dev/null"}, {"path": "/none"}, health=command)

    async def other_than(known: Optional[str]) -> Optional[str]:
        """The next answer. Nothing but news calls for a look."""
        reason = known
        while reason == known:
            await asyncio.wait_for(news.wait(), 10)
            news.clear()
            reason = (await checked(health, asked, []))["d0"]
        return reason

    first = await checked(health, asked, [])
    assert first == {"d0": UNANSWERED, "d1": "/none: No such file or directory"}
    assert await other_than(UNANSWERED) == "/bin/sh ended with 1: too hot"
    (tmp_path / "d0").touch()
    assert await other_than("/bin/sh ended with 1: too hot") is None
    await health.close()


async def test_a_command_runs_once_a_period_whoever_asks_and_calls_for_its_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    period = 0.05
    begun: list[float] = []

    async def run(*_: Any) -> Optional[str]:
        begun.append(commands._asked["example.com/dev", "d0"].begun)
        return None

    async def until(runs: int, ask: Callable[[], object]) -> None:
        while len(begun) < runs:
            ask()
            await asyncio.sleep(period / 20)

    monkeypatch.setattr(user_commands, "run_command", run)
    asked = resource({"path": "/dev/d"}, health={"command": ["/same"]})
    asked = asked._replace(health=asked.health._replace(period=period))
    commands = user_commands.UserCommands(on_news=lambda: commands.reason(asked, asked.devices[0]))
    commands.reason(asked, asked.devices[0])
    # The answer is the same each time, and is no news.
    await asyncio.wait_for(until(4, lambda: None), 10)
    await asyncio.wait_for(until(6, lambda: commands.reason(asked, asked.devices[0])), 10)
    await commands.close()
    assert all(later - earlier >= period - 1e-6 for earlier, later in zip(begun, begun[1:]))


async def test_a_command_that_is_slower_than_its_period_runs_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    end = asyncio.Event()

    async def run(*_: Any) -> Optional[str]:
        begun.append(now[0])
        await end.wait()
        return None

    monkeypatch.setattr(user_commands, "run_command", run)
    now = [0.0]
    commands = user_commands.UserCommands(on_news=lambda: None, clock=lambda: now[0])
    asked = resource({"path": "/dev/d"}, health={"command": ["/slow"], "period": 1})
    for now[0] in (0.0, 5.0, 10.0):
        assert commands.reason(asked, asked.devices[0]) == UNANSWERED
        await asyncio.sleep(0)
    assert begun == [0.0]
    end.set()
    while commands.reason(asked, asked.devices[0]) is not None or len(begun) < 2:
        await asyncio.sleep(0)
    await commands.close()
    assert begun == [0.0, 10.0]


async def test_what_a_command_said_of_a_device_that_went_counts_for_nothing_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its answer, nor that of one that began before the device went."""
    answers: asyncio.Queue[Optional[str]] = asyncio.Queue()

    async def run(*_: Any) -> Optional[str]:
        return await answers.get()

    async def state() -> dict[str, Optional[str]]:
        found = await checked(health, asked, [])
        await asyncio.sleep(0)
        return found

    async def until(reason: Optional[str]) -> None:
        while await state() != {"d0": reason}:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(user_commands, "run_command", run)
    node = tmp_path / "d"
    node.symlink_to("/dev/null")
    asked = resource({"path": "/dev/d", "host_path": str(node)}, health={"command": ["/slow"], "period": 3600})
    health = Health(on_news=lambda: None)
    assert await state() == {"d0": UNANSWERED}
    answers.put_nowait(None)
    await until(None)
    for _again in range(2):
        node.unlink()
        assert await state() != {"d0": None}
        node.symlink_to("/dev/null")
        assert await state() == {"d0": UNANSWERED}
    answers.put_nowait("it is another one")
    await until("it is another one")
    await health.close()


async def test_what_a_command_said_of_a_resource_that_went_counts_for_nothing_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(*_: Any) -> Optional[str]:
        return None

    monkeypatch.setattr(user_commands, "run_command", run)
    asked = resource({"path": "/dev/d", "host_path": "/dev/null"}, health={"command": ["/quick"], "period": 3600})
    health = Health(on_news=lambda: None)
    for without in ([], [asked._replace(health=resource().health)]):
        assert await checked(health, asked, []) == {"d0": UNANSWERED}
        while await checked(health, asked, []) != {"d0": None}:
            await asyncio.sleep(0)
        await health.check(without, [])
    assert await checked(health, asked, []) == {"d0": UNANSWERED}
    await health.close()


async def test_a_command_that_hangs_is_unhealthy_and_holds_up_nobody() -> None:
    news = asyncio.Event()
    health = Health(on_news=news.set)
    command = {"command": ["/bin/sleep", "60"], "timeout": 1}
    asked = resource({"path": "/dev/d", "host_path": "/dev/null"}, health=command)
    assert await checked(health, asked, []) == {"d0": UNANSWERED}
    await asyncio.wait_for(news.wait(), 10)
    assert await checked(health, asked, []) == {"d0": "/bin/sleep took longer than 1 s"}
    await health.close()


async def test_another_command_is_asked_at_once_and_until_then_the_last_answer_counts() -> None:
    news = asyncio.Event()
    health = Health(on_news=news.set)

    def asking(*command: str) -> Resource:
        return resource({"path": "/dev/d", "host_path": "/dev/null"}, health={"command": list(command), "period": 3600})

    await checked(health, asking("/bin/true"), [])
    await asyncio.wait_for(news.wait(), 10)
    assert await checked(health, asking("/bin/true"), []) == {"d0": None}
    news.clear()
    assert await checked(health, asking("/bin/false"), []) == {"d0": None}
    await asyncio.wait_for(news.wait(), 10)
    assert await checked(health, asking("/bin/false"), []) == {"d0": "/bin/false ended with 1"}
    await health.close()


async def test_devices_wait_for_specs_that_take_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, health = reader.check_file, Health(on_news=lambda: None, limit=20)

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.3)
        return real(*arguments)

    monkeypatch.setattr(reader, "check_file", slowly)
    for number in range(2):
        (tmp_path / FILE).write_text(cdi.serialise(SPEC) + " " * number)
        assert await checked(health, RESOURCE, [str(tmp_path)]) == {"d0": None, "d1": None}
    await health.close()


async def test_specs_that_hang_are_as_they_were_read_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, read = threading.Event(), CdiNames.read

    def hang(names: CdiNames, needed: Iterable[str]) -> None:
        release.wait(20)

    health = Health(on_news=lambda: None, limit=2)
    monkeypatch.setattr(CdiNames, "read", hang)
    unread = "cannot read the CDI specs: the check did not answer in 2 s"
    assert [*(await checked(health, RESOURCE, [str(tmp_path)])).values()] == [unread, unread]
    release.set()
    monkeypatch.setattr(CdiNames, "read", read)
    (tmp_path / FILE).write_text(cdi.serialise(SPEC))
    health = Health(on_news=lambda: None, limit=2)
    assert await checked(health, RESOURCE, [str(tmp_path)]) == {"d0": None, "d1": None}
    release.clear()
    monkeypatch.setattr(CdiNames, "read", hang)
    (tmp_path / FILE).unlink()
    assert await checked(health, RESOURCE, [str(tmp_path)]) == {"d0": None, "d1": None}
    release.set()


async def test_while_specs_hang_a_name_of_a_kind_that_was_never_read_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reload, for example. Devices of the kinds that were read keep their state."""
    (tmp_path / FILE).write_text(cdi.serialise(SPEC))
    (tmp_path / "vendor.json").write_text(foreign())
    health, release = Health(on_news=lambda: None, limit=0.3), threading.Event()
    assert await checked(health, RESOURCE, [str(tmp_path)]) == {"d0": None, "d1": None}
    named = [{"id": "gpu", "cdi_devices": ["vendor.com/gpu=0"]}]
    both = [RESOURCE, *parse_resources([{"name": "example.com/gpu", "devices": named}])]
    with monkeypatch.context() as patched:
        patched.setattr(CdiNames, "read", lambda *_: release.wait(20))
        found = await health.check(both, [str(tmp_path)])
    release.set()
    assert found["example.com/dev"] == {"d0": None, "d1": None}
    reason = f"cannot check the CDI name vendor.com/gpu=0: the specs in {tmp_path} were not read in time"
    assert found["example.com/gpu"] == {"gpu": reason}
    for _again in range(50):
        found = await health.check(both, [str(tmp_path)])
        if found["example.com/gpu"] == {"gpu": None}:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(found)


async def test_specs_that_cannot_be_read_any_more_are_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they said before counts for nothing; a device that needs none is not concerned."""
    health = Health(on_news=lambda: None)
    (tmp_path / FILE).write_text(one())
    devices = [{"id": "d0", "nodes": [{"path": "/dev/null"}]}, {"id": "plain"}]
    (asked,) = parse_resources([{"name": "example.com/dev", "devices": devices, "env": {"DEV_{index}": "{id}"}}])
    assert await checked(health, asked, [str(tmp_path)]) == {"d0": None, "plain": None}

    def fail(names: CdiNames, needed: Iterable[str]) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(CdiNames, "read", fail)
    reason = "cannot read the CDI specs: the check failed: OSError(5, 'Input/output error')"
    assert await checked(health, asked, [str(tmp_path)]) == {"d0": reason, "plain": None}
    await health.close()


@pytest.mark.parametrize("unread", [None, "they hang"])
def test_the_first_reason_counts(tmp_path: Path, unread: Optional[str]) -> None:
    declared = resource({"path": "/dev/no"})
    reason = checks._reason(declared, declared.devices[0], CdiNames([str(tmp_path)]), unread, {})
    assert reason == "/dev/no: No such file or directory"
