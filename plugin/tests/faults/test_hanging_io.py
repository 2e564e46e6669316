"""A path that hangs, as on a dead file system, stops nothing but its own resource."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelet_stand_in import StandInKubelet
from node_device_plugin.cdi.links import Links
from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.discovery import Discoverer
from node_device_plugin.status_api import client
from node_device_plugin.support.bounded_calls import BoundedCalls

from ..devices.discovery.conftest import Machine
from .process import PluginProcess, plugin_process

ALIVE, DEAD = "example.com/alive", "example.com/dead"
#: Seconds that the plugin gives each call here, unless its own limits are what is tested.
LIMIT = "0.5"
#: A directory, and the calls that the plugin makes there.
PLACES = [
    *(("dead", call) for call in ("stat", "lstat", "scandir", "readlink", "os.open", "inotify", "all")),
    *(("specs", call) for call in ("stat", "scandir", "open", "inotify", "all")),
    *(("cdi", call) for call in ("stat", "listdir", "open", "os.open", "inotify", "all")),
]


class HangingNode:
    """A plugin of which one resource lies where calls hang, and its kubelet.

    place: a directory: ``dead`` with devices, ``specs`` and ``cdi`` with CDI specs, or the configuration's, ``conf``.
    """

    def __init__(self, folder: Path, place: str, call: str, limit: str = LIMIT) -> None:
        self.folder = folder
        self.kubelet = StandInKubelet(str(folder / "dp"))
        self.alive, self.dead, self.conf = folder / "alive", folder / "dead", folder / "conf"
        for directory in (self.conf, folder / "specs", folder / "cdi"):
            directory.mkdir()
        (folder / "specs" / "theirs.json").write_text("{}")
        for directory in (self.alive, self.dead):
            directory.mkdir()
            (directory / "tty0").touch()
        (self.dead / "declared").symlink_to("tty1")
        (self.dead / "tty1").touch()
        self.environment = {
            "HANGING_DIRECTORY": str(folder / place),
            "HANGING_CALL": call,
            "HANGING_FROM": str(folder / "hang"),
            "HUNG": str(folder / "hung"),
            "LIMIT": limit,
        }

    def hang(self) -> None:
        (self.folder / "hang").touch()
        # The plugin opens a spec again only after a change.
        (self.folder / "specs" / "theirs.json").write_text("{ }")

    def go_on(self) -> None:
        (self.folder / "hang").unlink()
        (self.folder / "hung").unlink()

    def configuration(self, env: str) -> dict[str, Any]:
        declared = {"id": "declared", "nodes": [{"path": "/dev/declared", "host_path": str(self.dead / "declared")}]}
        return {
            "kubelet_device_plugin_dir": str(self.folder / "dp"),
            "kubelet_root_dir": str(self.folder),
            "dynamic_cdi_dir": str(self.folder / "cdi"),
            "cdi_spec_dirs": [str(self.folder / "specs")],
            "resources": [
                {
                    "name": DEAD,
                    "discover": {"paths": [str(self.dead / "tty0")]},
                    "devices": [declared],
                    "health": {"open": True},
                    "container_edits": {"env": ["ITS=" + env]},
                },
                {
                    "name": ALIVE,
                    "discover": {"paths": [str(self.alive / "tty*")]},
                    "injection": "device_nodes",
                    "env": {"A_{index}": env},
                },
            ],
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[PluginProcess]:
        run = plugin_process(
            self.conf, self.configuration("1"), module="tests.faults.hanging_io", environment=self.environment
        )
        async with self.kubelet, run as plugin:
            yield plugin

    async def offers(self, name: str, *endings: str) -> None:
        """Wait until these devices are healthy, and no others."""

        def healthy() -> list[str]:
            devices = self.kubelet.devices(name) if name in self.kubelet.manager.endpoints else {}
            return sorted(device[-4:] for device, health in devices.items() if health == "Healthy")

        await self.kubelet.until(lambda: healthy() == sorted(endings), 60)

    async def reload(self, env: str) -> Any:
        (self.conf / "plugin.yaml").write_text(yaml.safe_dump(self.configuration(env)))
        return await asyncio.wait_for(client.ask(str(self.folder / "dp"), "POST", "/reload"), 60)

    async def runs_with(self, env: str) -> None:
        """Reload. A machine that is busy may need more than one; the plugin sees the file by itself, too."""

        async def reload() -> None:
            while (await self.reload(env))["result"] == "refused":
                await asyncio.sleep(0.1)

        await asyncio.wait_for(reload(), 60)


async def ends(node: HangingNode, plugin: PluginProcess) -> None:
    """Promised within 5 s, which a busy machine may stretch; a thread that is waited for never ends."""
    await node.kubelet.until((node.folder / "hung").exists, 60)
    plugin.process.terminate()
    assert await asyncio.wait_for(plugin.process.wait(), 60) == 0, plugin.said()


@pytest.mark.parametrize(("place", "call"), PLACES)
async def test_what_hangs_stops_no_other_resource_no_reload_and_no_end(short_path: Path, place: str, call: str) -> None:
    node = HangingNode(short_path, place, call)
    async with node.running() as plugin:
        await node.offers(ALIVE, "tty0")
        await node.offers(DEAD, "ared", "tty0")
        node.hang()
        (node.alive / "tty1").touch()
        await node.offers(ALIVE, "tty0", "tty1")
        await node.runs_with("2")
        (node.alive / "tty0").unlink()
        await node.offers(ALIVE, "tty1")
        await node.kubelet.allocate_pod("pod", {"main": {ALIVE: 1}})
        # Its devices are known as before, healthy or not.
        assert len(node.kubelet.devices(DEAD)) == 2
        await ends(node, plugin)


@pytest.mark.parametrize("call", ["open", "all"])
async def test_a_configuration_file_that_hangs_is_refused_and_the_next_one_answered(
    short_path: Path, call: str
) -> None:
    node = HangingNode(short_path, "conf", call)
    async with node.running() as plugin:
        await node.offers(ALIVE, "tty0")
        node.hang()
        refused = await node.reload("2")
        assert (refused["result"], len(refused["problems"])) == ("refused", 1)
        assert "did not answer in %s s" % LIMIT in str(refused["problems"])
        (node.alive / "tty1").touch()
        await node.offers(ALIVE, "tty0", "tty1")
        node.go_on()
        await node.runs_with("3")
        node.hang()
        assert (await node.reload("4"))["result"] == "refused"
        await ends(node, plugin)


@pytest.mark.parametrize("call", ["stat", "inotify"])
async def test_where_news_of_the_configuration_file_hangs_a_reload_reads_it(short_path: Path, call: str) -> None:
    node = HangingNode(short_path, "conf", call)
    async with node.running() as plugin:
        await node.offers(ALIVE, "tty0")
        node.hang()
        await node.runs_with("2")
        (node.alive / "tty1").touch()
        await node.offers(ALIVE, "tty0", "tty1")
        await ends(node, plugin)


async def test_a_start_while_everything_hangs(short_path: Path) -> None:
    node = HangingNode(short_path, "dead", "all", limit="")
    node.hang()
    async with node.running() as plugin:
        await node.offers(ALIVE, "tty0")
        assert f'resource={DEAD} reason="discovery by paths did not answer in 2 s"' in plugin.said()
        await ends(node, plugin)


async def test_an_end_during_a_first_look_that_hangs(short_path: Path) -> None:
    node = HangingNode(short_path, "dead", "all")
    node.hang()
    async with node.running() as plugin:
        await plugin.until_said("did not answer")
        assert "registered" not in plugin.said()
        await ends(node, plugin)


async def test_a_usb_device_in_reset_leaves_the_rest_of_its_bus_as_it_was(tmp_path: Path) -> None:
    """Reading its serial number waits for its lock; here for a writer that never comes."""
    machine = Machine(tmp_path)
    for port in ("1-1", "1-2"):
        machine.on_bus("usb", "pci0/usb1/" + port, idVendor="0403", idProduct="6001", serial=port, devname=port)
    machine.file("/dev/tty0")
    usb = {"name": "example.com/usb", "discover": {"usb": [{"vendor": "0403"}], "paths": ["/dev/tty*"]}}
    other = {"name": "example.com/other", "discover": {"paths": ["/dev/lamp*"]}}
    resources = parse_resources([usb, other])
    discoverer = Discoverer(Links(BoundedCalls(limit=2)), str(machine.path))

    async def found() -> list[list[str]]:
        answer = await discoverer.discover(resources, dict)
        return [[device.id for device in answer[each.name].devices] for each in resources]

    both = ["usb-0403-6001-1-1", "usb-0403-6001-1-2"]
    # Somebody else's never answers, and nobody asks it.
    machine.on_bus("usb", "pci0/usb1/1-3", idVendor="1d6b", idProduct="0002", devname="1-3")
    os.mkfifo(machine.path / "sys/devices/pci0/usb1/1-3/serial")
    assert await found() == [["tty0", *both], []]
    assert dict(discoverer.late) == {}
    serial = machine.path / "sys/devices/pci0/usb1/1-2/serial"
    serial.unlink()
    os.mkfifo(serial)
    machine.file("/dev/tty1")
    machine.file("/dev/lamp0")
    assert await found() == [["tty0", "tty1", *both], ["lamp0"]]
    assert dict(discoverer.late) == {"example.com/usb": "discovery by usb did not answer in 2 s"}
    # Its thread ends.
    serial.write_text("1-2\n")
