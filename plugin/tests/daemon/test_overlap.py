"""Two instances on a node whose kubelet is of 1.37 or later: the next one serves before the last one has ended."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Callable

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.status_api import probe
from node_device_plugin.support.sockets import (
    ALWAYS,
    CLAIMS_ALONE,
    INSTANCE,
    INSTANCE_SOCKET,
    OVERLAP,
    answers,
    instance_file,
)
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from .test_main import PATH, Journal

NAME = "example.com/found"
CONFIG = """
cdi_spec_dirs: [%(root)s/cdi]
dynamic_cdi_dir: %(root)s/cdi
kubelet_device_plugin_dir: %(root)s/dp
kubelet_root_dir: %(root)s
registration: %(registration)s
resources:
  - name: example.com/found
    discover: {paths: [/dev/null, /dev/zero]}
"""


class Instance:
    """A process of the plugin. folder: the node's; number: tells instances apart."""

    def __init__(self, folder: Path, number: int) -> None:
        self.socket = str(folder / ("own%d.sock" % number))
        self._journal = Journal(folder / ("notify%d" % number))
        self.config = folder / "config.yaml"

    async def start(self, overlaps: bool, name: str = "", value: str = ALWAYS) -> None:
        """name: of the instance's DaemonSet; empty for the service, which overlaps only if a play allows it."""
        environment = {OVERLAP: value, INSTANCE_SOCKET: self.socket, INSTANCE: name} if overlaps else {}
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "node_device_plugin", "run", "--config", str(self.config)),
            env={**os.environ, "PYTHONPATH": PATH, "NOTIFY_SOCKET": str(self._journal.path), **environment},
        )

    async def registered(self) -> None:
        await self._journal.until("READY=1")
        await self._journal.until("1 of 1 resources registered")

    async def told(self, message: str) -> None:
        await self._journal.until(message)

    async def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        await asyncio.wait_for(self.process.wait(), 20)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, AttributeError):
            self.process.kill()
        self._journal.close()


@pytest.fixture
async def node(short_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[list[Instance]]:
    registration = getattr(request, "param", "device_plugins")
    (short_path / "cdi").mkdir()
    (short_path / "config.yaml").write_text(CONFIG % {"root": short_path, "registration": registration})
    instances = [Instance(short_path, number) for number in range(3)]
    yield instances
    for instance in instances:
        instance.close()


@contextlib.asynccontextmanager
async def watched(short_path: Path) -> AsyncIterator[StandInKubelet]:
    """A kubelet of 1.37. Inside this block it has each resource's two devices healthy, without a moment in between."""
    drops: list[dict[str, str]] = []
    async with StandInKubelet(str(short_path / "dp"), minor=(1, 37), registry_interval=0.05) as kubelet:
        received, marked = kubelet.manager._received, kubelet.manager.state.mark_unhealthy

        def look() -> None:
            seen = kubelet.devices(NAME)
            if list(seen.values()) != ["Healthy"] * 2:
                drops.append(seen)

        def on_list(resource, response):  # type: ignore[no-untyped-def]
            received(resource, response)
            look()

        def on_end(resource):  # type: ignore[no-untyped-def]
            marked(resource)
            look()

        kubelet.manager.clients._on_devices = on_list
        kubelet.manager.state.mark_unhealthy = on_end  # type: ignore[method-assign]
        yield kubelet
        assert drops == []


def owner(path: str) -> int:
    """The process that serves a socket; 0 for none."""
    with socket.socket(socket.AF_UNIX) as connection:
        if connection.connect_ex(path):
            return 0
        pid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def status(short_path: Path) -> str:
    return str(short_path / "dp" / "node-device-plugin" / "status.sock")


def spec(short_path: Path) -> Path:
    return short_path / "cdi" / "node-device-plugin_example.com_found.json"


@pytest.mark.parametrize("node", ["device_plugins", "plugins_registry"], indirect=True)
@pytest.mark.parametrize("first_overlaps", [True, False], ids=["same", "one that holds the lock as long as it lives"])
async def test_the_devices_never_drop_while_one_instance_takes_over_from_another(
    node: list[Instance], short_path: Path, first_overlaps: bool
) -> None:
    async with watched(short_path) as kubelet:
        await node[0].start(first_overlaps)
        await node[0].registered()
        await kubelet.registered(NAME)
        for last, following in zip(node, node[1:]):
            await following.start(overlaps=True)
            await following.registered()
            # Ready by a socket of its own, while the last one has the node's.
            assert probe.probe(following.socket, "/readyz") == ""
            assert owner(status(short_path)) == last.process.pid
            asked = len(kubelet.manager.clients.asked)
            await last.end()
            await until(lambda pid=following.process.pid: owner(status(short_path)) == pid)
            assert probe.probe(following.socket, "/readyz") == ""
            # Nobody had to register for it.
            assert len(kubelet.manager.clients.asked) == asked
            await kubelet.allocate_pod("pod-%d" % following.process.pid, {"main": {NAME: 1}})


async def test_what_a_killed_instance_leaves_is_removed_and_what_a_living_one_has_is_not(
    node: list[Instance], short_path: Path
) -> None:
    sockets = short_path / "dp" / "node-device-plugin"
    async with watched(short_path):
        await node[0].start(overlaps=True)
        await node[0].registered()
        before = set(os.listdir(sockets))
        await node[1].start(overlaps=True)
        await node[1].registered()
        assert before < set(os.listdir(sockets))
        await node[0].end(signal.SIGKILL)
        await until(lambda: owner(status(short_path)) == node[1].process.pid)
        names = set(os.listdir(sockets)) - {"given.json", "instance"}
        assert len(names) == 2
        assert all(answers(str(sockets / name)) for name in names)


async def test_the_specs_are_written_by_one_instance(node: list[Instance], short_path: Path) -> None:
    async with StandInKubelet(str(short_path / "dp"), minor=(1, 37)) as kubelet:
        await node[0].start(overlaps=True)
        await node[0].registered()
        node[0].process.send_signal(signal.SIGSTOP)
        written = spec(short_path).read_text()
        spec(short_path).unlink()
        await node[1].start(overlaps=True)
        await node[1].registered()
        # What was never healthy is not listed.
        await kubelet.until(lambda: kubelet.devices(NAME) == {})
        assert not spec(short_path).exists()
        await node[0].end(signal.SIGKILL)
        await kubelet.until(lambda: kubelet.devices(NAME) == {"null": "Healthy", "zero": "Healthy"})
        assert spec(short_path).read_text() == written


@pytest.mark.parametrize("first", ["DaemonSet node-devices/pool", "node-device-plugin.service"])
async def test_the_pod_of_another_daemonset_serves_nothing_until_the_others_end(
    node: list[Instance], short_path: Path, first: str
) -> None:
    """Two profiles, or a profile and the service, match one node: the second pod says which one serves."""
    is_service = first.endswith(".service")
    second = f"DaemonSet node-devices/{'pool' if is_service else 'other'}"
    async with watched(short_path) as kubelet:
        await node[0].start(overlaps=not is_service, name=first)
        await node[0].registered()
        await kubelet.registered(NAME)
        await node[1].start(overlaps=True, name=second)
        await node[1].told(f"STATUS=another instance of the plugin serves in {status(short_path)[:-12]}: {first}")
        asked = [node[1].socket, "/healthz", instance_file(str(short_path / "dp"))]
        assert probe.probe(*asked).startswith(f"{first} serves this node's devices")
        if not is_service:
            # The next pod of the first DaemonSet is the one that follows.
            await node[2].start(overlaps=True, name=first)
            await node[2].registered()
            await node[0].end()
            await until(lambda: owner(status(short_path)) == node[2].process.pid)
            await asyncio.sleep(0.3)
            assert not os.path.exists(node[1].socket)
        else:
            # A play that switches the mode.
            served_by = Path(instance_file(str(short_path / "dp")))
            served_by.write_text(f"{served_by.read_text()}{second}\n")
            await node[1].registered()
            await node[0].end()
            await until(lambda: owner(status(short_path)) == node[1].process.pid)
            assert served_by.read_text() == f"{second}\n"


async def test_the_other_daemonset_serves_once_nobody_else_does(node: list[Instance], short_path: Path) -> None:
    async with StandInKubelet(str(short_path / "dp"), minor=(1, 37)):
        await node[0].start(overlaps=True, name="DaemonSet a/a")
        await node[0].registered()
        await node[1].start(overlaps=True, name="DaemonSet b/b")
        await node[1].told("STATUS=another instance")
        await node[0].end(signal.SIGKILL)
        await node[1].registered()
        assert Path(instance_file(str(short_path / "dp"))).read_text() == "DaemonSet b/b\n"
        await node[1].end()
        assert not os.path.exists(instance_file(str(short_path / "dp")))


async def test_what_the_other_instance_offers_by_another_name_waits_for_its_end(
    node: list[Instance], short_path: Path
) -> None:
    """Its configuration is older: a device must not be free by both names."""
    for instance, resources in (
        (node[0], {"old": "null", "shared": "zero"}),
        (node[1], {"new": "null", "shared": "zero", "more": "full"}),
    ):
        text = (CONFIG % {"root": short_path, "registration": "device_plugins"}).partition("  - name")[0]
        for name, device in resources.items():
            text += "  - {name: example.com/%s, injection: device_nodes, devices: " % name
            text += "[{id: 'at-%s', nodes: [{path: /dev/%s}]}]}\n" % (device, device)
        instance.config = short_path / ("%s.yaml" % "-".join(resources))
        instance.config.write_text(text)
    async with StandInKubelet(str(short_path / "dp"), minor=(1, 37)) as kubelet:
        await node[0].start(overlaps=True)
        assert await kubelet.registered("example.com/old") == {"at-null": "Healthy"}
        await node[1].start(overlaps=True)
        assert await kubelet.registered("example.com/more") == {"at-full": "Healthy"}
        assert await kubelet.registered("example.com/new") == {"at-null": "Unhealthy"}
        assert kubelet.devices("example.com/shared") == {"at-zero": "Healthy"}
        await node[0].end()
        await kubelet.until(lambda: kubelet.devices("example.com/new") == {"at-null": "Healthy"})


async def test_the_list_of_the_instance_that_stays_is_the_one_that_counts(
    node: list[Instance], short_path: Path
) -> None:
    """A kubelet keeps the list that came last, also of a stream that has ended."""
    async with StandInKubelet(str(short_path / "dp"), minor=(1, 37)) as kubelet:
        for instance in node[:2]:
            await instance.start(overlaps=True)
            await instance.registered()
        await kubelet.registered(NAME)
        kubelet.manager._received(NAME, api.ListAndWatchResponse(devices=[api.Device(ID="null", health="Healthy")]))
        assert kubelet.devices(NAME) == {"null": "Healthy"}
        await node[0].end()
        await kubelet.until(lambda: kubelet.devices(NAME) == {"null": "Healthy", "zero": "Healthy"})


BY_CLAIMS = """
  - {name: example.com/claimed, api: dra, devices: [{id: full, nodes: [{path: /dev/full}]}]}
dra: {node: worker, kubeconfig: %(root)s/kubelet.conf}
"""


def sockets_of_resources(short_path: Path) -> list[str]:
    return [name for name in os.listdir(short_path / "dp" / "node-device-plugin") if name.startswith("found-")]


async def test_with_claims_alone_a_device_plugin_waits_for_the_end_of_the_other_instance(
    node: list[Instance], short_path: Path
) -> None:
    """Up to 1.36, a kubelet accepts two sockets of a DRA driver, but not of a device plugin."""
    plugin = (CONFIG % {"root": short_path, "registration": "device_plugins"}).partition("  - name")
    claimed, found = BY_CLAIMS % {"root": short_path}, plugin[1] + plugin[2]
    node[0].config.write_text(plugin[0] + claimed)
    async with StandInKubelet(str(short_path / "dp"), minor=(1, 36)) as kubelet:
        for instance in node[:2]:
            await instance.start(overlaps=True, name="DaemonSet a/a", value=CLAIMS_ALONE)
            await instance.told("READY=1")
        assert owner(status(short_path)) == node[0].process.pid
        # A reload: only the instance that leads registers the new resource.
        node[0].config.write_text(plugin[0] + found + claimed)
        await kubelet.registered(NAME)
        await asyncio.sleep(1)
        assert len(sockets_of_resources(short_path)) == 1
        # The same at a start.
        await node[2].start(overlaps=True, name="DaemonSet a/a", value=CLAIMS_ALONE)
        await node[2].told("STATUS=another instance of the plugin serves")
        first = sockets_of_resources(short_path)
        await node[0].end()
        await until(lambda: owner(status(short_path)) == node[1].process.pid)
        await until(lambda: len(sockets_of_resources(short_path)) == 1 and sockets_of_resources(short_path) != first)
        await kubelet.until(lambda: kubelet.devices(NAME) == {"null": "Healthy", "zero": "Healthy"})
