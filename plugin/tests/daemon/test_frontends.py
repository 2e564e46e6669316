"""Two APIs of the kubelet on one node: which frontend serves a resource, withdraws it, and tells who holds it."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.cluster.node_readiness import Offered
from node_device_plugin.daemon import holders, resource_manager
from node_device_plugin.daemon.node_report import offered
from node_device_plugin.daemon.resource_manager import ResourceManager
from node_device_plugin.declaration import Configuration, Device, Resource, parse_configuration
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.devices.given import IN_DOUBT, Offer
from node_device_plugin.devices.holdings import HeldId, Holding
from node_device_plugin.devices.scanner import DeviceScanner
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet.device_plugin.ids import ListedId
from node_device_plugin.kubelet.frontend import Frontend, Held, HoldersUnknown, ResourceStatus

NAME, OTHER = "example.com/dev", "example.com/other"


class Recorded:
    """A frontend that notes every call."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.is_allocatable = True
        self.offers: dict[str, DeviceTable] = {}
        #: What the manager withdrew, with the reasons.
        self.withdrawn: list[tuple[str, Mapping[HeldId, str]]] = []
        #: The names of the offers.
        self.order: list[str] = []
        self.settled: list[Configuration] = []
        self.holders: list[Holding] = []
        self.offered: frozenset[str] = frozenset()
        self.is_by_kubelet = True
        self.asked: list[tuple[Collection[str], Sequence[str]]] = []
        self.unknown = self.agrees = self.stays = self.is_full = False
        self.repeats = 0
        self.is_asked, self.answers = asyncio.Event(), asyncio.Event()
        self.answers.set()
        self.served = asyncio.Event()

    async def run(self) -> None:
        await asyncio.sleep(3600)

    async def settle(self, configuration: Configuration) -> None:
        self.settled.append(configuration)

    def without_room(self, resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> Mapping[str, str]:
        return {device.id: f"no room in {self.api}" for device in found if self.is_full}

    def listed_ids(self, resource: Resource, device: Device) -> list[HeldId]:
        return [HeldId(f"{self.api}-{device.id}")]

    async def offer(self, table: DeviceTable) -> bool:
        self.offers[table.declared.name] = table
        self.order.append(table.declared.name)
        return self.stays

    async def withdraw(self, resource: str, held: Mapping[HeldId, str]) -> bool:
        self.withdrawn.append((resource, dict(held)))
        if self.agrees or not held:
            self.offers.pop(resource, None)
        return self.agrees

    async def held(self, own: Collection[str], spec_dirs: Sequence[str]) -> Held:
        self.asked.append((own, spec_dirs))
        self.is_asked.set()
        await self.answers.wait()
        if self.unknown:
            raise HoldersUnknown("nobody knows")
        ids = frozenset(device_id for each in self.holders for _resource, device_id in each.keys)
        return Held(self.holders, ids, self.offered, self.is_by_kubelet)

    async def all_served(self) -> None:
        await self.served.wait()

    def repeat(self) -> None:
        self.repeats += 1

    def status(self, resource: str) -> ResourceStatus:
        return ResourceStatus(resource in self.offers, None, f"by {self.api}")


class Node:
    """A manager with two frontends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.watch = Watch()
        self.scanner = DeviceScanner(self.watch)
        self.one, self.two = Recorded("one"), Recorded("two")
        frontends: dict[str, Frontend] = {"one": self.one, "two": self.two}
        self.resources = ResourceManager(self.scanner, frontends)

    def configuration(self, **apis: str) -> Configuration:
        """The resources with these last parts of their names, each of an API, each with a device of its own."""
        data: list[dict[str, Any]] = [
            {"name": f"example.com/{name}", "devices": [{"id": name, "nodes": [{"path": path}]}]}
            for name, path in (("dev", "/dev/null"), ("other", "/dev/zero"))
            if name in apis
        ]
        settings = {
            "kubelet_device_plugin_dir": str(self.folder / "dp"),
            "kubelet_root_dir": str(self.folder),
            "dynamic_cdi_dir": str(self.folder / "cdi"),
            "cdi_spec_dirs": [],
            "resources": data,
        }
        configuration = parse_configuration(settings)
        resources = tuple(each._replace(api=apis[each.name.rpartition("/")[2]]) for each in configuration.resources)
        return configuration._replace(resources=resources)

    async def apply(self, **apis: str) -> str:
        return await self.resources.apply(self.configuration(**apis))

    def reason(self, name: str = NAME) -> Optional[str]:
        (table,) = (each for each in self.resources.tables if each.declared.name == name)
        return table.reason(table.resource.devices[0])


@pytest.fixture
async def node(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    # Only what is withheld or refused is a reason to ask.
    monkeypatch.setattr(resource_manager, "SWEEP", 600.0)
    made = Node(short_path)
    yield made
    await made.scanner.close()
    made.watch.close()


async def test_each_resource_is_served_by_the_frontend_that_it_names(node: Node) -> None:
    change = await node.apply(dev="one", other="two")
    assert change == f"added {NAME} {OTHER}"
    assert (list(node.one.offers), list(node.two.offers)) == ([NAME], [OTHER])
    assert [each.status.problem for each in node.resources.served()] == ["by one", "by two"]
    # Room is what the frontend says that serves the resource.
    for table, says in ((node.one.offers[NAME], "one"), (node.two.offers[OTHER], "two")):
        node.one.is_full = node.two.is_full = True
        table.set_devices([Device("found", (), table.declared.container_edits, {}, required=False)])
        assert table.left_out == {"found": f"no room in {says}"}
    # Every frontend learns of each configuration, and is asked who holds what.
    for each in (node.one, node.two):
        assert len(each.settled) == 1
        assert each.asked == [({NAME, OTHER}, ("/etc/cdi", "/var/run/cdi", str(node.folder / "cdi")))]
    served = asyncio.ensure_future(node.resources.all_served())
    node.one.served.set()
    await asyncio.sleep(0)
    assert not served.done()
    node.two.served.set()
    await asyncio.wait_for(served, 10)
    await node.resources.take_over()
    assert (node.one.repeats, node.two.repeats) == (1, 1)


async def test_the_node_object_shows_the_devices_of_one_api(node: Node) -> None:
    node.two.is_allocatable = False
    await node.apply(dev="one", other="two")
    assert offered(node.resources.served()) == Offered({NAME: 1}, [])
    # But the kubelet must have both resources.
    node.two.offers.clear()
    assert offered(node.resources.served()) == Offered({NAME: 1}, [OTHER])


async def test_what_a_reload_changed(node: Node) -> None:
    await node.apply(dev="one", other="two")
    node.one.stays = True
    # The other frontend ends its offers with each configuration, as if the way to the kubelet had changed.
    assert await node.apply(dev="one", other="two") == f"registered again {OTHER}; kept {NAME}"
    assert await node.apply(dev="one") == f"removed {OTHER}; kept {NAME}"


async def test_a_new_resource_comes_after_those_that_may_have_lost_a_device_to_it(node: Node) -> None:
    await node.apply(other="one")
    assert (await node.apply(dev="one", other="one")).startswith(f"added {NAME}; ")
    assert node.one.order == [OTHER, OTHER, NAME]


async def test_a_resource_that_changes_its_api_is_in_doubt_with_the_former_one_until_nobody_holds_it(
    node: Node,
) -> None:
    await node.apply(dev="one")
    node.one.holders = [Holding("default/own", NAME, HeldId("dev"), frozenset(), api="one")]
    change = await node.apply(dev="two")
    assert change == f"registered again {NAME}"
    # What containers hold is not known yet, and then it is.
    held = "held by default/own as example.com/dev"
    assert node.one.withdrawn == [(NAME, {HeldId("one-dev"): IN_DOUBT}), (NAME, {HeldId("dev"): held})]
    assert list(node.two.offers) == [NAME]
    assert node.two.withdrawn == []
    # The kubelet counts a device by its API, so the other one withholds it.
    assert node.reason() == held
    node.one.holders, node.one.agrees = [], True
    await node.resources.ask_for_holders()
    assert node.one.withdrawn[2:] == [(NAME, {})]
    assert node.reason() is None
    # It agreed, so it is asked no more.
    await node.resources.ask_for_holders()
    assert len(node.one.withdrawn) == 3
    await node.apply(dev="one")
    assert node.two.withdrawn[:1] == [(NAME, {HeldId("two-dev"): IN_DOUBT})]


async def test_a_frontend_that_refuses_is_asked_again_until_it_agrees_or_serves_the_resource(node: Node) -> None:
    await node.apply(dev="one")
    await node.apply()
    # Nobody holds it, and the frontend still refuses.
    assert node.one.withdrawn == [(NAME, {HeldId("one-dev"): IN_DOUBT}), (NAME, {})]
    await node.resources.ask_for_holders()
    assert len(node.one.withdrawn) == 3
    await node.apply(dev="one")
    await node.resources.ask_for_holders()
    assert len(node.one.withdrawn) == 3


async def test_a_resource_that_another_plugin_offers_is_left_to_it(node: Node) -> None:
    await node.apply(dev="one")
    node.one.offered = frozenset([NAME])
    await node.apply()
    assert node.one.withdrawn == [(NAME, {HeldId("one-dev"): IN_DOUBT})]
    # Only the same API's kubelet tells.
    node.one.offered, node.two.offered = frozenset(), frozenset([NAME])
    await node.resources.ask_for_holders()
    assert node.one.withdrawn[1:] == [(NAME, {})]


@pytest.mark.parametrize("is_by_kubelet", [True, False])
async def test_only_the_kubelet_tells_that_a_former_resource_is_held(node: Node, is_by_kubelet: bool) -> None:
    """By its checkpoint alone, another plugin may offer the resource by now."""
    await node.apply(dev="one")
    node.one.agrees = True
    await node.apply()
    node.one.withdrawn.clear()
    node.scanner.given.record = {(NAME, "dev"): Offer("", ())}
    node.one.holders = [Holding("default/own", NAME, HeldId("dev"), frozenset(), api="one")]
    node.one.is_by_kubelet = is_by_kubelet
    await node.apply()
    assert [name for name, _held in node.one.withdrawn] == ([NAME] if is_by_kubelet else [])


async def test_without_an_answer_of_one_frontend_every_doubt_stays(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await node.apply(dev="one")
    node.two.unknown = True
    await node.apply(other="one")
    assert node.one.withdrawn == [(NAME, {HeldId("one-dev"): IN_DOUBT})]
    assert caplog.messages.count('cannot find out which devices pods hold error="nobody knows"') == 1
    await node.resources.ask_for_holders()
    assert len(node.one.withdrawn) == 1
    node.two.unknown = False
    await node.resources.ask_for_holders()
    assert node.one.withdrawn[1:] == [(NAME, {})]


async def test_a_removed_resource_is_waited_for_with_its_own_frontend(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_manager, "_RETIRING", 60.0)
    await node.apply(dev="one")
    await node.apply()
    waits = asyncio.ensure_future(node.resources.all_retired())
    node.two.offers[NAME] = DeviceTable(parse_configuration({"resources": [{"name": NAME}]}).resources[0])
    await asyncio.sleep(0.2)
    assert not waits.done()
    node.one.offers[NAME] = node.two.offers[NAME]
    await asyncio.wait_for(waits, 10)


async def test_an_instance_that_does_not_lead_keeps_nothing(node: Node) -> None:
    await node.apply(dev="one")
    node.scanner.writes = False
    await node.apply()
    assert node.one.withdrawn == [(NAME, {})]


async def test_a_device_that_is_held_through_any_api_stays_in_the_specs(node: Node) -> None:
    spec = node.folder / "cdi" / "node-device-plugin_example.com_dev.json"
    settings = {
        "kubelet_device_plugin_dir": str(node.folder / "dp"),
        "dynamic_cdi_dir": str(spec.parent),
        "cdi_spec_dirs": [],
    }
    found = {"name": NAME, "discover": {"paths": ["/dev/null", "/dev/zero"]}}
    discovering = parse_configuration({**settings, "resources": [found]})

    def names() -> list[str]:
        return [device["name"] for device in json.loads(spec.read_text())["devices"]]

    resources = tuple(each._replace(api="one") for each in discovering.resources)
    await node.resources.apply(discovering._replace(resources=resources))
    await node.resources.apply(parse_configuration({**settings, "resources": []}))
    node.one.holders = [Holding("default/own", "vendor.com/x", HeldId("zero"), frozenset(), api="one")]
    node.two.holders = [Holding("default/own", "vendor.com/x", ListedId("null::7"), frozenset())]
    await node.resources.prune()
    assert names() == ["null", "zero"]
    node.one.holders = []
    await node.resources.prune()
    assert names() == ["null"]


async def test_an_answer_about_another_kubelet_prunes_nothing(node: Node) -> None:
    spec = node.folder / "cdi" / "node-device-plugin_example.com_dev.json"
    configuration = node.configuration(dev="one")
    resources = tuple(each._replace(cdi_by_plugin=True) for each in configuration.resources)
    await node.resources.apply(configuration._replace(resources=resources))
    await node.apply()
    node.one.is_asked.clear()
    node.one.answers.clear()
    pruning = asyncio.ensure_future(node.resources.prune())
    await asyncio.wait_for(node.one.is_asked.wait(), 10)
    # The reload is first in the queue of the lock.
    async with node.resources._one_at_a_time:
        elsewhere = asyncio.ensure_future(
            node.resources.apply(node.configuration()._replace(kubelet_root_dir=str(node.folder / "other")))
        )
        await asyncio.sleep(0)
        node.one.answers.set()
    await asyncio.gather(elsewhere, pruning)
    assert spec.exists()
    await node.resources.prune()
    assert not spec.exists()


async def test_the_leader_alone_is_not_asked_by_itself(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another instance asks it which devices it offers."""
    asked: list[str] = []

    async def ask(directory: str, _method: str, _path: str) -> Any:
        asked.append(directory)
        devices = [
            {"id": "a", "kubelet_ids": ["a"], "host_paths": ["/dev/null"]},
            {"id": "b", "kubelet_ids": ["b::0", "b::1"], "host_paths": []},
            {"id": "c", "kubelet_ids": [], "host_paths": []},
        ]
        by_dra = {"name": "example.com/claimed", "api": "dra", "devices": devices[:1]}
        return {"resources": [{"name": OTHER, "devices": devices}, by_dra]}

    monkeypatch.setattr(holders.client, "ask", ask)
    await node.apply()
    assert asked == []
    node.scanner.writes = False
    node.scanner.given.record = {("example.com/former", "f"): Offer("", ())}
    answer = await node.resources._holders.ask([NAME])
    assert asked == [str(node.folder / "dp")]
    assert answer is not None
    another = holders.ANOTHER_INSTANCE
    assert answer.holdings == [
        Holding(another, OTHER, ListedId("a"), frozenset(["/dev/null"])),
        Holding(another, OTHER, ListedId("b::0"), frozenset(), is_share=True),
        Holding(another, "example.com/claimed", ListedId("a"), frozenset(["/dev/null"]), api="dra"),
    ]
    # A resource of an earlier process is ours, too.
    assert node.one.asked[-1][0] == {NAME, "example.com/former"}


async def test_what_was_allocated_a_moment_ago_is_held_through_its_api(node: Node) -> None:
    await node.apply(dev="two")
    (table,) = node.resources.tables
    node.scanner.given.allocated(table.resource, [HeldId("dev")])
    await node.apply()
    admitted = "held by a pod that the kubelet is admitting as example.com/dev"
    assert node.two.withdrawn[1:] == [(NAME, {HeldId("dev"): admitted})]
    assert node.one.withdrawn == []
