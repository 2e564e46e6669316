"""What every container has proves nothing: the parts of a device that show that a container was given it."""

import asyncio
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.declaration import Resource, parse_resources
from node_device_plugin.declaration.model import DeviceNode
from node_device_plugin.verification import evidence, looking
from node_device_plugin.verification.container_view import Seen, View, expected_in_container, mismatches
from node_device_plugin.verification.judging import with_outcome
from node_device_plugin.verification.looking import Outcome, look
from node_device_plugin.verification.report import Row

from .fake_node import FakeNode

RANDOM = {"path": "/dev/random"}
#: What a container has that was given nothing.
NODES = {"/dev/null": (1, 3), "/dev/zero": (1, 5), "/dev/full": (1, 7), "/dev/random": (1, 8), "/dev/urandom": (1, 9)}
NODES["/dev/tty"] = (5, 0)
VARIABLES = {"PATH": "/bin", "HOSTNAME": "h", "HOME": "/root", "TERM": "xterm", "KUBERNETES_PORT": "tcp://10.0.0.1:443"}
MOUNTS = {"/": "overlay", "/proc": "proc", "/dev": "tmpfs", "/dev/shm": "tmpfs", "/sys": "sysfs", "/etc/hosts": "ext4"}
MOUNTS.update({"/proc/kcore": "tmpfs", "/sys/firmware": "tmpfs", "/sys/fs/cgroup": "cgroup2", "/dev/mqueue": "mqueue"})


def resource(*nodes: Mapping[str, Any], **more: Any) -> Resource:
    device = {"id": "d0", "nodes": list(nodes), **more.pop("device", {})}
    (only,) = parse_resources([{"name": "example.com/dev", "devices": [device], **more}])
    return only


def view(
    nodes: Mapping[str, tuple[int, int]] = {},
    env: Mapping[str, str] = {},
    mounts: Mapping[str, str] = {},
    mode: int = 0o666,
) -> View:
    """A container that has this beside what every container has."""
    there = {path: Seen(stat.S_IFCHR | mode, 0, 0, list(number)) for path, number in {**NODES, **nodes}.items()}
    return View({**VARIABLES, **env}, {**MOUNTS, **mounts}, lambda path: there.get(path, "no such file or directory"))


def shown(seen: View, declared: Resource, **more: Any) -> list[str]:
    assert mismatches(seen, expected_in_container(declared, declared.devices)) == []
    return evidence.shown(seen, declared, declared.devices, **more)


@pytest.mark.parametrize(
    ("declared", "has"),
    [
        *((resource({"path": path}), view()) for path in NODES),
        (resource(RANDOM, env={"RANDOM": "x"}), view(env={"RANDOM": "x"})),
        (resource(RANDOM, annotations={"example.com/x": "y"}), view()),
        (resource({**RANDOM, "type": "c", "major": 1, "minor": 8}), view()),
        (resource({**RANDOM, "mode": "0666", "uid": 0, "gid": 0}), view()),
        # Allocate sets the variable to the same value.
        (
            resource(RANDOM, env={"R": "x"}, container_edits={"env": ["R=x"]}),
            view(env={"R": "x"}),
        ),
        (resource(RANDOM, container_edits={"env": ["PATH=/bin", "KUBERNETES_PORT=tcp://10.0.0.1:443"]}), view()),
        *(
            (resource(container_edits={"mounts": [{"host_path": "/srv", "container_path": path}]}), view())
            for path in ("/etc/hosts", "/dev/shm", "/sys/firmware", "/sys/fs/cgroup")
        ),
        (resource(container_edits={"additional_gids": [44]}), view()),
        (resource(container_edits={"hooks": [{"name": "poststart", "path": "/bin/true"}]}), view()),
        (resource(pre_start={"command": ["/bin/true"]}), view()),
        (resource(env={"PATH": "/bin"}), view()),
        (resource(RANDOM, injection="device_nodes"), view()),
    ],
)
def test_what_every_container_has_shows_nothing_and_needs_no_pod(declared: Resource, has: View) -> None:
    assert shown(has, declared, with_annotations=True) == []
    assert not evidence.can_show(declared, declared.devices)


@pytest.mark.parametrize(
    ("declared", "has"),
    [
        (resource({"path": "/dev/crand0", "host_path": "/dev/random"}), view({"/dev/crand0": (1, 8)})),
        (resource({"path": "/dev/random", "host_path": "/dev/hwrng"}), view({"/dev/random": (10, 183)})),
        (resource(RANDOM, {"path": "/dev/ttyS0"}), view({"/dev/ttyS0": (4, 64)})),
        (resource(RANDOM, container_edits={"env": ["R=x"]}), view(env={"R": "x"})),
        (resource(RANDOM, env={"R": "y"}, container_edits={"env": ["R=x"]}), view(env={"R": "x"})),
        (
            resource(RANDOM, container_edits={"mounts": [{"host_path": "/srv", "container_path": "/srv"}]}),
            view(mounts={"/srv": "ext4"}),
        ),
        (resource({**RANDOM, "mode": "0600"}), view(mode=0o600)),
        # Without CDI edits, the kubelet gives all.
        (resource(env={"DEV_{index}": "{id}"}), view(env={"DEV_0": "d0"})),
        (resource(RANDOM, injection="device_nodes", env={"R": "x"}), view(env={"R": "x"})),
    ],
)
def test_something_else_of_its_edits_shows_a_device(declared: Resource, has: View) -> None:
    assert evidence.can_show(declared, declared.devices)
    assert shown(has, declared) == ["d0"]


def test_a_node_that_the_host_should_have_replaced_shows_nothing() -> None:
    """Through the API, nobody can compare the numbers with those of the host."""
    declared = resource({"path": "/dev/random", "host_path": "/dev/hwrng"})
    assert evidence.can_show(declared, declared.devices)
    assert shown(view(), declared) == []


def test_annotations_show_a_device_only_where_they_are_known() -> None:
    declared = resource(annotations={"example.com/x": "{id}"})
    assert evidence.can_show(declared, declared.devices, with_annotations=True)
    assert not evidence.can_show(declared, declared.devices)
    assert shown(view(), declared, with_annotations=True) == ["d0"]
    assert shown(view(), declared) == []


@pytest.mark.parametrize("path", ["/dev/kmsg", "/dev/mem"])
def test_a_container_that_sees_the_hosts_nodes_shows_only_what_has_another_name(path: str) -> None:
    """A privileged container has every node of the host, whatever it was given."""
    privileged = view({path: (1, 11), "/dev/ttyS0": (4, 64), "/dev/com1": (4, 64)})
    assert shown(privileged, resource({"path": "/dev/ttyS0"})) == []
    assert shown(privileged, resource({"path": "/dev/com1", "host_path": "/dev/ttyS0"})) == ["d0"]
    # A container that was given this node itself is like any other.
    assert shown(privileged, resource({"path": "/dev/ttyS0"}, {"path": path})) == ["d0"]


def test_each_device_shows_itself() -> None:
    devices = [{"id": "r", "nodes": [RANDOM]}, {"id": "s", "nodes": [{"path": "/dev/ttyS0"}]}]
    (both,) = parse_resources([{"name": "example.com/dev", "devices": devices}])
    assert shown(view({"/dev/ttyS0": (4, 64)}), both) == ["s"]
    (foreign,) = parse_resources([{"name": "example.com/g", "devices": [{"id": "g", "cdi_devices": ["a.com/gpu=c"]}]}])
    node = DeviceNode("/dev/gpu0", "/dev/gpu0", "rw", None, None, None)
    foreign = foreign._replace(devices=(foreign.devices[0]._replace(foreign_nodes=(node,)),), env={"G": "0"})
    assert shown(view({"/dev/gpu0": (195, 0)}, {"G": "0"}), foreign) == ["g"]
    bare = foreign._replace(devices=(foreign.devices[0]._replace(foreign_nodes=()),))
    assert shown(view(env={"G": "0"}), bare) == []


def test_the_reason_names_what_every_container_has_and_the_way_out() -> None:
    advice = "set container_edits.env, for example to [DEVICE=given], and verify again"
    declared = resource(RANDOM, {"path": "/dev/null"})
    assert evidence.why_none(declared, declared.devices) == (
        "the container may have /dev/random, /dev/null without the devices, as every container or as a privileged one: "
        f"give the nodes another path, or {advice}"
    )
    declared = resource(container_edits={"additional_gids": [44]})
    assert evidence.why_none(declared, declared.devices) == (
        f"the devices give a container no device node, mount or variable by which it shows them: {advice}"
    )
    # The way out is one.
    edited = resource(RANDOM, container_edits={"env": ["DEVICE=given"]})
    assert shown(view(env={"DEVICE": "given"}), edited) == ["d0"]


@pytest.mark.parametrize(
    ("more", "seen"), [({}, ()), ({"container_edits": {"env": ["DEVICE=given"]}}, ("d0",)), ({"env": {"E": "e"}}, ())]
)
def test_a_process_with_the_nodes_of_every_container_is_no_proof(more: Any, seen: tuple[str, ...]) -> None:
    declared = resource({"path": "/dev/null"}, **more)
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    environment = {"DEVICE": "given", "E": "e"}
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        outcome = asyncio.run(look(process.pid, {}, declared, declared.devices, 0.0))
        process.communicate()
    why = "" if seen else evidence.why_none(declared, declared.devices)
    assert outcome == Outcome(seen, (), why)


async def test_a_device_that_no_container_can_show_is_unproven_without_a_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else each run would make the pod again, because the record has proofs alone."""
    node = FakeNode(monkeypatch, tmp_path, {"example.com/random": ["r0"]})
    declared = {"name": "example.com/random", "devices": [{"id": "r0", "nodes": [RANDOM]}], "env": {"R": "x"}}
    report = await node.verify(declared)
    assert (report.rows[0].state, report.rows[0].seen, report.proven, node.asked) == ("unproven", (), {}, [])
    assert report.rows[0].shares == 0, "the controller would make a pod"
    assert report.rows[0].detail.startswith("the container may have /dev/random without the devices")
    node.holds("c1", [], "r0", resource="example.com/random")
    assert (await node.verify(declared)).rows[0].state == "unproven"
    marked = {**declared, "container_edits": {"env": ["DEVICE=given"]}}
    node.holders.clear()
    assert ((await node.verify(marked)).rows[0].state, node.asked) == ("proven", ["example.com/random 1"])


@pytest.mark.parametrize("free", [True, False])
async def test_a_holder_that_shows_nothing_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: bool
) -> None:
    """A privileged pod, for example. A proof's pod then decides, if a device is free."""
    node = FakeNode(monkeypatch, tmp_path, {"example.com/lamp": ["l0", "l1"] if free else ["l0"]})
    node.holds("privileged", [], "l0")

    async def nothing(*_: object) -> Outcome:
        return Outcome(unproven="it may have /dev/lamp anyway")

    monkeypatch.setattr(looking, "look", nothing)
    devices = [{"id": each, "nodes": [{"path": f"/dev/{each}", "host_path": "/dev/null"}]} for each in ("l0", "l1")]
    (row,) = (await node.verify({"name": "example.com/lamp", "devices": devices[: 2 if free else 1]})).rows
    says = "no device is free, and a container of default/privileged: it may have /dev/lamp anyway"
    assert (row.state, row.detail) == (("proven", "") if free else ("unproven", says))


def test_without_a_kubelet_the_resource_stays_pending() -> None:
    row = Row("example.com/random", 1, 0, (), "pending", "no kubelet yet")
    outcomes = {"example.com/random": Outcome(unproven="every container has it")}
    assert with_outcome(row, outcomes) == row
    assert with_outcome(row, {"example.com/random": Outcome(("r0",))}).seen == ("r0",)
