"""A device that a container holds by another name is given to nobody else: after a rename, a move, a restart."""

import asyncio
from pathlib import Path
from typing import Any, AsyncIterator, Dict, List, Optional

import pytest

from kubelet_stand_in import StandInKubelet
from kubelet_stand_in.stand_in import PodRejected
from node_device_plugin.daemon import resource_manager
from node_device_plugin.daemon.resource_manager import ResourceManager
from node_device_plugin.declaration import parse_configuration
from node_device_plugin.devices import reconcile
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.devices.holdings import Holding, held_by_other_names
from node_device_plugin.devices.scanner import DeviceScanner
from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.checkpoint import CheckpointError
from node_device_plugin.kubelet.device_plugin.kubelet_socket import KubeletSocket
from node_device_plugin.kubelet.device_plugin.registration import Registration
from node_device_plugin.support.task_group import TaskGroup

from ..serving import kept_registered

OLD, NEW = "example.com/old", "example.com/new"


def device(name: str, path: Optional[str] = None) -> Dict[str, Any]:
    return {"id": name, **({"nodes": [{"path": path}]} if path else {})}


def resource(name: str, *devices: Dict[str, Any], **others: Any) -> Dict[str, Any]:
    return {"name": name, "devices": list(devices), **others}


NULL, ZERO = device("null0", "/dev/null"), device("zero0", "/dev/zero")


class Node:
    """A node's folders, and the plugin that runs there now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resources: Optional[ResourceManager] = None
        self.ask = asyncio.Event()

    async def start(self, *resources: Dict[str, Any]) -> None:
        """Start a plugin that knows nothing of those before it."""
        self.tasks, self.watch = TaskGroup(), Watch()
        self.resources = ResourceManager(self.tasks, DeviceScanner(self.watch))
        await self.apply(*resources)
        self.tasks.start(reconcile.watch_holders(self.resources))

    async def stop(self) -> None:
        if self.resources is not None:
            await self.tasks.stop()
            self.watch.close()
            self.resources = None

    async def apply(self, *resources: Dict[str, Any]) -> None:
        assert self.resources is not None
        await self.resources.apply(
            parse_configuration(
                {
                    "kubelet_device_plugin_dir": str(self.folder / "dp"),
                    "kubelet_root_dir": str(self.folder),
                    "dynamic_cdi_dir": str(self.folder / "cdi"),
                    "cdi_spec_dirs": [str(self.folder / "cdi")],
                    "cdi_owner": "plugin",
                    "resources": list(resources),
                }
            )
        )

    def reasons(self) -> Dict[str, Optional[str]]:
        assert self.resources is not None
        return {d.id: table.reason(d) for table in self.resources.tables for d in table.resource.devices}


@pytest.fixture
async def node(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(reconcile, "HOLDERS_PERIOD", 0.05)
    monkeypatch.setattr(resource_manager, "SWEEP", 0.1)
    made = Node(short_path)
    yield made
    await made.stop()


@pytest.fixture
async def kubelet(short_path: Path) -> AsyncIterator[StandInKubelet]:
    async with StandInKubelet(str(short_path / "dp")) as running:
        yield running


async def hold(kubelet: StandInKubelet, name: str, count: int = 1, pod: str = "own") -> str:
    await kubelet.registered(name)
    return (await kubelet.allocate_pod(pod, {"main": {name: count}})).uid


async def has(kubelet: StandInKubelet, name: str, devices: Dict[str, str]) -> None:
    await kubelet.registered(name)
    await kubelet.until(lambda: kubelet.devices(name) == devices, 10, "%s is not %s" % (name, devices))


def recorded(kubelet: StandInKubelet) -> List[Dict[str, str]]:
    """Every list of devices that the kubelet gets from now on."""
    lists: List[Dict[str, str]] = []
    update = kubelet.manager.state.update
    kubelet.manager.state.update = lambda name, devices: (  # type: ignore[method-assign]
        lists.append({each.ID: each.health for each in devices}),
        update(name, devices),
    )[1]
    return lists


HELD = "held by default/own-node as %s"


def test_a_name_that_is_gone_is_matched_by_what_it_gave() -> None:
    """Nodes that several devices give tell none of them apart; without any of its own, a device is its id."""
    shared = {"path": "/dev/control"}
    resources = parse_configuration(
        {
            "resources": [
                resource(NEW, {"id": "a", "nodes": [{"path": "/dev/a"}, shared]}, {"id": "b", "nodes": [shared]}),
                resource("example.com/shares", device("s", "/dev/s"), replicas=2),
                resource("example.com/none", device("bare")),
            ]
        }
    ).resources

    def found(name: str, kubelet_id: str, *host_paths: str) -> Dict[str, Dict[str, str]]:
        is_share = "::" in kubelet_id
        return held_by_other_names(
            resources, [Holding("default/own", name, kubelet_id, frozenset(host_paths), is_share)]
        )

    assert found(OLD, "gpu", "/dev/a", "/dev/control") == {NEW: {"a": "held by default/own as " + OLD}}
    assert found(OLD, "gpu", "/dev/control") == {}
    assert found(OLD, "b", "/dev/control") == {NEW: {"b": "held by default/own as " + OLD}}
    # A node that both have among others tells nothing; one that has all of the other's is the same, with more or less.
    assert found(OLD, "gpu", "/dev/s", "/dev/other") == {"example.com/shares": {"s": "held by default/own as " + OLD}}
    assert found(OLD, "gpu", "/dev/a", "/dev/other") == {}
    # The same id, and another device.
    assert found(OLD, "a", "/dev/elsewhere") == {}
    assert found(OLD, "bare") == {"example.com/none": {"bare": "held by default/own as " + OLD}}
    # What was not ours is not known by its id.
    foreign = Holding("default/own", "vendor.com/x", "bare", frozenset(), is_ours=False)
    assert held_by_other_names(resources, [foreign]) == {}
    # What was exclusive stays so; of what was shared before, and is now, there are shares.
    assert found(OLD, "s", "/dev/s") == {"example.com/shares": {"s": "held by default/own as " + OLD}}
    assert found(OLD, "s::1", "/dev/s") == {}
    assert found(OLD, "a::0", "/dev/a") == {NEW: {"a": "held by default/own as " + OLD}}
    # The kubelet counts what is held by today's name.
    assert found(NEW, "a", "/dev/a") == {}
    assert found("example.com/shares", "s::0", "/dev/s") == {}
    assert found("example.com/shares", "s", "/dev/s") == {
        "example.com/shares": {"s": "held by default/own as example.com/shares"}
    }


async def test_a_rename_gives_no_held_device_out_again(node: Node, kubelet: StandInKubelet) -> None:
    await node.start(resource(OLD, NULL))
    pod = await hold(kubelet, OLD)
    await node.apply(resource(NEW, NULL, ZERO))
    await has(kubelet, NEW, {"null0": "Unhealthy", "zero0": "Healthy"})
    assert node.reasons() == {"null0": HELD % OLD, "zero0": None}
    with pytest.raises(PodRejected):
        await kubelet.allocate_pod("thief", {"main": {NEW: 2}})
    await kubelet.remove_pod(pod)
    await has(kubelet, NEW, {"null0": "Healthy", "zero0": "Healthy"})


@pytest.mark.parametrize("injection", ["cdi", "device_nodes"])
async def test_a_plugin_that_starts_later_finds_it_out(node: Node, kubelet: StandInKubelet, injection: str) -> None:
    """From what the kubelet keeps alone; and the first list that the kubelet gets has it."""
    await node.start(resource(OLD, NULL, injection=injection))
    await hold(kubelet, OLD)
    await node.stop()
    await kubelet.disconnected(OLD)
    lists = recorded(kubelet)
    await node.start(resource(NEW, device("another", "/dev/null"), ZERO, injection=injection))
    await has(kubelet, NEW, {"another": "Unhealthy", "zero0": "Healthy"})
    assert lists == [{"another": "Unhealthy", "zero0": "Healthy"}]
    assert node.reasons()["another"] == HELD % OLD


async def test_a_device_that_moves_to_another_resource_is_held_until_it_is_free(
    node: Node, kubelet: StandInKubelet
) -> None:
    await node.start(resource(OLD, NULL, ZERO), resource(NEW, device("full0", "/dev/full")))
    pod = await hold(kubelet, OLD, 2)
    await kubelet.registered(NEW)
    await node.apply(resource(OLD, ZERO), resource(NEW, device("full0", "/dev/full"), NULL))
    await has(kubelet, NEW, {"full0": "Healthy", "null0": "Unhealthy"})
    await has(kubelet, OLD, {"zero0": "Healthy"})
    assert node.reasons() == {"zero0": None, "full0": None, "null0": HELD % OLD}
    await kubelet.remove_pod(pod)
    await has(kubelet, NEW, {"full0": "Healthy", "null0": "Healthy"})


async def test_another_id_and_other_shares_are_other_names(node: Node, kubelet: StandInKubelet) -> None:
    await node.start(resource(OLD, NULL, ZERO))
    await hold(kubelet, OLD, 2)
    await node.apply(resource(OLD, device("null1", "/dev/null"), ZERO))
    await has(kubelet, OLD, {"null1": "Unhealthy", "zero0": "Healthy"})
    await node.apply(resource(OLD, NULL, ZERO, replicas=2))
    shares = ["null0::0", "null0::1", "zero0::0", "zero0::1"]
    await has(kubelet, OLD, dict.fromkeys(shares, "Unhealthy"))


async def test_shares_go_on_as_shares(node: Node, kubelet: StandInKubelet) -> None:
    await node.start(resource(OLD, NULL, replicas=2))
    await hold(kubelet, OLD)
    await node.apply(resource(NEW, NULL, replicas=2))
    await has(kubelet, NEW, {"null0::0": "Healthy", "null0::1": "Healthy"})


async def test_what_others_offer_is_their_matter(node: Node, kubelet: StandInKubelet) -> None:
    """Another plugin may give a device that we give, too: nobody said that it is ours alone."""
    (others,) = parse_configuration({"resources": [resource(OLD, NULL, injection="device_nodes")]}).resources
    socket = KubeletSocket(kubelet.directory)
    async with kept_registered([others], lambda service: Registration(service, socket)):
        await hold(kubelet, OLD)
        await node.start(resource(NEW, NULL))
        await has(kubelet, NEW, {"null0": "Healthy"})
    # Where it has gone, nobody but us keeps the device for its container.
    await kubelet.disconnected(OLD)
    await has(kubelet, NEW, {"null0": "Unhealthy"})
    socket.close()


async def test_while_no_kubelet_answers_its_checkpoint_tells(node: Node, kubelet: StandInKubelet) -> None:
    await node.start(resource(OLD, NULL))
    pod = await hold(kubelet, OLD)
    await node.stop()
    await kubelet.stop()
    await node.start(resource(NEW, NULL))
    assert node.reasons() == {"null0": "held by pod %s as %s" % (pod, OLD)}
    await kubelet.start()
    await has(kubelet, NEW, {"null0": "Unhealthy"})
    await kubelet.until(lambda: node.reasons() == {"null0": HELD % OLD}, 10, "it is not asked again")
    await kubelet.remove_pod(pod)
    await has(kubelet, NEW, {"null0": "Healthy"})


async def test_without_a_checkpoint_that_can_be_read_ids_tell_and_doubt_ends(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_directory: str) -> None:
        raise CheckpointError("unknown form")

    monkeypatch.setattr(resource_manager, "_DOUBT", 0.2)
    monkeypatch.setattr(queries, "read_checkpoint", refuse)
    await node.start(resource(OLD, NULL))
    await hold(kubelet, OLD)
    await node.apply(resource(NEW, NULL))
    await has(kubelet, NEW, {"null0": "Unhealthy"})
    assert node.reasons()["null0"] == HELD % OLD


async def test_nobody_who_says_who_holds_what_keeps_no_device_in_doubt_for_ever(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_manager, "_DOUBT", 0.2)
    await node.start(resource(OLD, NULL))
    await kubelet.registered(OLD)

    async def nobody(*_: object) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(queries, "holders", nobody)
    await node.apply(resource(NEW, NULL))
    await has(kubelet, NEW, {"null0": "Healthy"})


async def test_a_device_is_not_offered_before_it_is_known_who_holds_it(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.start(resource(OLD, NULL))
    await hold(kubelet, OLD)
    answer, asked, holders = asyncio.Event(), asyncio.Event(), queries.holders

    async def slow(*arguments: Any) -> Any:
        asked.set()
        await answer.wait()
        return await holders(*arguments)

    monkeypatch.setattr(queries, "holders", slow)
    applying = asyncio.create_task(node.apply(resource(NEW, NULL)))
    await asyncio.wait_for(asked.wait(), 10)
    await asyncio.sleep(0.05)
    assert NEW not in kubelet.manager.endpoints
    assert not applying.done()
    answer.set()
    await applying
    await has(kubelet, NEW, {"null0": "Unhealthy"})


async def test_a_free_device_is_offered_by_its_new_name_at_once(node: Node, kubelet: StandInKubelet) -> None:
    await node.start(resource(OLD, NULL))
    await kubelet.registered(OLD)
    lists = recorded(kubelet)
    await node.apply(resource(NEW, NULL))
    await has(kubelet, NEW, {"null0": "Healthy"})
    assert lists == [{"null0": "Healthy"}]


async def test_what_is_given_out_while_the_name_changes_is_found_before_the_new_one_is_offered(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod gets the device just after the kubelet has said that nobody holds it."""
    await node.start(resource(OLD, NULL))
    await kubelet.registered(OLD)
    holders = queries.holders

    async def stale(*arguments: Any) -> Any:
        answer = await holders(*arguments)
        monkeypatch.setattr(queries, "holders", holders)
        await hold(kubelet, OLD)
        return answer

    monkeypatch.setattr(queries, "holders", stale)
    await node.apply(resource(OLD, device("null1", "/dev/null")))
    assert node.reasons() == {"null1": HELD % OLD}
