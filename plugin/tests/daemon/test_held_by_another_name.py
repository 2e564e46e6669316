"""A device that a container holds by another name is given to nobody else: after a rename, a move, a restart."""

import asyncio
import json
import os
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Callable

import pytest

from kubelet_stand_in import StandInKubelet
from kubelet_stand_in.stand_in import PodRejected
from node_device_plugin.cdi import directories
from node_device_plugin.daemon import reconcile, resource_manager
from node_device_plugin.declaration import parse_configuration
from node_device_plugin.devices.discovery import Discoverer
from node_device_plugin.devices.given import ADMITTED, IN_DOUBT, Given, Now
from node_device_plugin.devices.holdings import Holding, matches
from node_device_plugin.devices.identity import Identity
from node_device_plugin.devices.our_specs import OurSpecs
from node_device_plugin.devices.reason import told
from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.checkpoint import CheckpointError
from node_device_plugin.kubelet.device_plugin.ids import ListedId
from node_device_plugin.kubelet.device_plugin.kubelet_socket import KubeletSocket
from node_device_plugin.kubelet.device_plugin.registration import Registration
from node_device_plugin.kubelet.pod_resources import Listing
from node_device_plugin.support.bounded_calls import NoAnswer

from ..devices.discovery.conftest import Machine
from ..serving import kept_registered
from .held_node import HELD, NEW, NULL, OLD, ZERO, Node, device, given, has, hold, recorded, resource


def by_resource(found: dict[tuple[str, str], list[Holding]]) -> dict[str, dict[str, str]]:
    result: dict[str, dict[str, str]] = {}
    for (name, device_id), holdings in found.items():
        result.setdefault(name, {})[device_id] = f"held by {holdings[0].holder} as {holdings[0].resource}"
    return result


def test_a_name_that_is_gone_is_matched_by_what_it_gave() -> None:
    """Nodes that several devices give tell none of them apart; without any of its own, a device is its id."""
    shared = {"path": "/dev/control"}
    resources = parse_configuration(
        {
            "resources": [
                resource(NEW, {"id": "a", "nodes": [{"path": "/dev/a"}, shared]}, {"id": "b", "nodes": [shared]}),
                resource("example.com/shares", device("s", "/dev/s"), replicas=2),
                resource("example.com/none", device("bare"), env={"BARE": "{id}"}),
            ]
        }
    ).resources

    def found(name: str, kubelet_id: str, *host_paths: str) -> dict[str, dict[str, str]]:
        is_share = "::" in kubelet_id
        holdings = [Holding("default/own", name, ListedId(kubelet_id), frozenset(host_paths), is_share)]
        return by_resource(matches(resources, holdings, tokens))

    tokens = {
        (each.name, device.id): frozenset(node.host_path for node in device.nodes)
        for each in resources
        for device in each.devices
    }
    assert found(OLD, "gpu", "/dev/a", "/dev/control") == {NEW: {"a": "held by default/own as " + OLD}}
    assert found(OLD, "gpu", "/dev/control") == {}
    for same in ("a", "b"):
        assert found(OLD, same, "/dev/control") == {NEW: {same: "held by default/own as " + OLD}}
    # A node that both have among others tells nothing; one that has all of the other's is the same, with more or less.
    assert found(OLD, "gpu", "/dev/s", "/dev/other") == {"example.com/shares": {"s": "held by default/own as " + OLD}}
    assert found(OLD, "gpu", "/dev/a", "/dev/other") == {}
    # The same id, and another device.
    assert found(OLD, "a", "/dev/elsewhere") == {}
    assert found(OLD, "bare") == {"example.com/none": {"bare": "held by default/own as " + OLD}}
    # What was not ours is not known by its id.
    foreign = Holding("default/own", "vendor.com/x", ListedId("bare"), frozenset(), is_ours=False)
    assert matches(resources, [foreign], tokens) == {}
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


def test_a_renamed_device_is_in_doubt_unless_it_was_shared_and_still_is() -> None:
    at = {"/dev/null": Identity("/dev/null", "char/1:3")}

    def judged(before: int, after: int) -> Mapping[str, Mapping[str, str]]:
        given = Given()
        for name, replicas in ((OLD, before), (NEW, after)):
            now = parse_configuration({"resources": [resource(name, NULL, replicas=replicas)]}).resources
            reasons = given.judge(now, {(name, "null0")}, Now(at)).reasons
        return reasons

    for before, after in ((1, 1), (1, 2), (2, 1)):
        assert judged(before, after) == {NEW: {"null0": IN_DOUBT}}
    assert judged(2, 2) == {NEW: {}}


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
    lists = recorded(kubelet, NEW)
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


def vendor(node: Node, *names: str, path: str = "/dev/null") -> None:
    """Write another program's spec, with all names for one device, beside a device of /dev/zero."""
    edits = {"deviceNodes": [{"path": path}, {"path": "/dev/full"}]}
    other = {"deviceNodes": [{"path": "/dev/zero"}, {"path": "/dev/full"}]}
    devices = [{"name": name, "containerEdits": edits} for name in names]
    devices.append({"name": "other", "containerEdits": other})
    spec = {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": devices}
    (node.folder / "cdi").mkdir(exist_ok=True)
    (node.folder / "cdi" / "vendor.json").write_text(json.dumps(spec))


GPUS = {"name": NEW, "discover": {"cdi": {"kind": "vendor.com/gpu"}}}
UUID = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"


async def hold_two_gpus(node: Node, kubelet: StandInKubelet) -> str:
    """A pod gets both devices of a spec that has only indexes; returns its uid."""
    vendor(node, "0")
    await node.start(GPUS)
    await has(kubelet, NEW, {"vendor.com-gpu-0": "Healthy", "other": "Healthy"})
    return await hold(kubelet, NEW, 2)


async def test_a_device_of_another_spec_that_gets_a_uuid_is_not_given_twice(
    node: Node, kubelet: StandInKubelet
) -> None:
    pod = await hold_two_gpus(node, kubelet)
    vendor(node, "0", UUID)
    assert node.resources is not None
    await node.resources.check()
    await has(kubelet, NEW, {UUID: "Unhealthy", "vendor.com-gpu-0": "Unhealthy", "other": "Healthy"})
    assert node.reasons()[UUID] == HELD % NEW
    await kubelet.remove_pod(pod)
    await kubelet.until(lambda: kubelet.devices(NEW)[UUID] == "Healthy", 10, "the device stays withheld")


async def test_to_know_who_holds_what_only_the_specs_of_held_kinds_are_parsed(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    check = directories.check_content

    def checked(path: str, *arguments: Any) -> Any:
        parsed.append(os.path.basename(path))
        return check(path, *arguments)

    monkeypatch.setattr(directories, "check_content", checked)
    vendor(node, "0")
    other = (node.folder / "cdi" / "vendor.json").read_text().replace("vendor.com", "other.com")
    (node.folder / "cdi" / "other.json").write_text(other)
    await node.start(resource(OLD, NULL))
    await hold(kubelet, OLD)
    assert node.resources is not None
    await node.resources.ask_for_holders()
    assert {name for name in parsed if not name.startswith("node-device-plugin_")} == set()
    await node.stop()
    await kubelet.disconnected(OLD)
    # A plugin that starts later parses the spec of a held device once, although it offers no device of the kind.
    await node.start(GPUS)
    pod = await hold(kubelet, NEW, 1)
    await node.stop()
    await kubelet.disconnected(NEW)
    # A new file, which no reader knows.
    (node.folder / "cdi" / "vendor.json").unlink()
    vendor(node, "0")
    parsed.clear()
    await node.start(resource("example.com/plain", ZERO))
    places = (str(node.folder), str(node.folder / "dp"), [str(node.folder / "cdi")])
    for _again in range(2):
        state = await queries.holders(*places)
        (paths,) = (each.all_host_paths for each in state.held if each.resource == NEW)
        assert paths in (("/dev/full", "/dev/zero"), ("/dev/full", "/dev/null"))
    assert [name for name in parsed if not name.startswith("node-device-plugin_")] == ["vendor.json"]
    await kubelet.remove_pod(pod)
    parsed.clear()
    assert NEW not in {each.resource for each in (await queries.holders(*places)).held}
    assert parsed == []


async def test_a_device_whose_only_name_changes_is_not_given_twice(node: Node, kubelet: StandInKubelet) -> None:
    await hold_two_gpus(node, kubelet)
    assert node.resources is not None
    # The plugin asks regularly who holds what.
    await asyncio.sleep(0.15)
    await node.resources.ask_for_holders()
    vendor(node, UUID)
    await node.resources.check()
    await has(kubelet, NEW, {UUID: "Unhealthy", "vendor.com-gpu-0": "Unhealthy", "other": "Healthy"})
    # It stays so when the plugin has asked again.
    await asyncio.sleep(0.5)
    assert node.reasons()[UUID] == HELD % NEW


async def test_an_answer_from_before_a_new_id_does_not_free_the_device(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "HOLDERS_PERIOD", 600.0)
    monkeypatch.setattr(resource_manager, "SWEEP", 0.0)
    vendor(node, "0")
    await node.start(GPUS)
    await has(kubelet, NEW, {"vendor.com-gpu-0": "Healthy", "other": "Healthy"})
    answer, asked, holders = asyncio.Event(), asyncio.Event(), queries.holders

    async def stale(*arguments: Any) -> Any:
        found = await holders(*arguments)
        asked.set()
        await answer.wait()
        return found

    assert node.resources is not None
    with monkeypatch.context() as patched:
        patched.setattr(queries, "holders", stale)
        asking = asyncio.create_task(node.resources.ask_for_holders())
        await asyncio.wait_for(asked.wait(), 10)
    await hold(kubelet, NEW, 2)
    vendor(node, UUID)
    await node.resources.check()
    answer.set()
    await asking
    assert node.reasons()[UUID] == HELD % NEW


async def test_a_question_without_an_answer_does_not_free_a_device_with_a_new_id(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor(node, "0")
    await node.start(GPUS)
    await has(kubelet, NEW, {"vendor.com-gpu-0": "Healthy", "other": "Healthy"})

    async def nobody(*_: object) -> None:
        raise OSError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(queries, "holders", nobody)
        await hold(kubelet, NEW, 2)
        vendor(node, UUID)
        assert node.resources is not None
        await node.resources.check()
        await node.resources.ask_for_holders()
        assert node.reasons()[UUID] == f"held by {ADMITTED} as {NEW}"
    await kubelet.until(lambda: node.reasons()[UUID] == HELD % NEW, 10, "it is not asked again")


async def test_a_name_that_went_while_no_plugin_ran_may_be_any_free_device_of_its_kind(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor(node, "0")
    await node.start(GPUS)
    await has(kubelet, NEW, {"vendor.com-gpu-0": "Healthy", "other": "Healthy"})
    pods = [await hold(kubelet, NEW, pod=name) for name in ("one", "two")]
    await node.stop()
    await kubelet.disconnected(NEW)
    # As in another process.
    monkeypatch.setattr(queries, "_last_known", {})
    vendor(node, UUID)
    await node.start(GPUS)
    await has(kubelet, NEW, {UUID: "Unhealthy", "other": "Healthy"})
    assert str(node.reasons()[UUID]).startswith("held by default/")
    for pod in pods:
        await kubelet.remove_pod(pod)
    await has(kubelet, NEW, {UUID: "Healthy", "other": "Healthy"})


async def test_a_uuid_that_went_while_no_plugin_ran_is_no_other_uuid(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = UUID[:-1] + "0"
    vendor(node, UUID)
    await node.start(GPUS)
    await has(kubelet, NEW, {UUID: "Healthy", "other": "Healthy"})
    await hold(kubelet, NEW, 2)
    await node.stop()
    await kubelet.disconnected(NEW)
    monkeypatch.setattr(queries, "_last_known", {})
    vendor(node, another, "0")
    await node.start(GPUS)
    await has(kubelet, NEW, {another: "Healthy", "other": "Healthy"})


async def test_a_device_that_goes_leaves_its_neighbour_in_the_container_healthy(
    node: Node, kubelet: StandInKubelet
) -> None:
    await hold_two_gpus(node, kubelet)
    vendor(node)
    assert node.resources is not None
    await node.resources.check()
    await asyncio.sleep(0.3)
    await node.resources.ask_for_holders()
    assert node.reasons() == {"vendor.com-gpu-0": "gone", "other": None}


async def test_a_declared_device_stays_reserved_while_the_specs_cannot_be_read(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor(node, "0")
    # The same node by a name of another kind, so that only the specs tell.
    spec = (node.folder / "cdi" / "vendor.json").read_text().replace("vendor.com/gpu", "vendor.com/set")
    (node.folder / "cdi" / "set.json").write_text(spec)
    declared = {"id": "gpu", "cdi_devices": ["vendor.com/set=0"]}
    await node.start(resource(OLD, declared), GPUS)
    await has(kubelet, NEW, {"other": "Healthy"})

    def fail(*_: object) -> Any:
        raise OSError("no specs")

    assert node.resources is not None
    monkeypatch.setattr(node.resources._scanner._discoverer._reader, "read", fail)
    await node.resources.check()
    assert node.reasons() == {"gpu": None, "other": None}
    # The specs as last read also tell what another declaration means.
    await node.apply(resource(OLD, {**declared, "cdi_devices": ["vendor.com/set=other"]}), GPUS)
    assert node.reasons()["other"] == f"gone: /dev/zero is already a node of {OLD}=gpu"


@pytest.mark.parametrize("later", [True, False])
async def test_a_node_that_becomes_a_device_of_another_spec_is_not_given_twice(
    node: Node, kubelet: StandInKubelet, later: bool
) -> None:
    """And back: by paths at first, by CDI then, or the other way round, also in a plugin that starts later."""
    vendor(node, UUID)
    await node.start(resource(OLD, NULL))
    await hold(kubelet, OLD)
    if later:
        await node.stop()
        await kubelet.disconnected(OLD)
        await node.start(GPUS)
    else:
        await node.apply(GPUS)
    await has(kubelet, NEW, {UUID: "Unhealthy", "other": "Healthy"})
    assert node.reasons()[UUID] == HELD % OLD


@pytest.mark.parametrize("later", [True, False])
async def test_a_device_of_another_spec_that_becomes_a_node_is_not_given_twice(
    node: Node, kubelet: StandInKubelet, later: bool
) -> None:
    vendor(node, UUID)
    declared = {"id": "gpu", "cdi_devices": [f"vendor.com/gpu={UUID}"]}
    await node.start(resource(OLD, declared))
    await hold(kubelet, OLD)
    if later:
        await node.stop()
        await kubelet.disconnected(OLD)
        await node.start(resource(NEW, NULL, ZERO))
    else:
        await node.apply(resource(NEW, NULL, ZERO))
    await has(kubelet, NEW, {"null0": "Unhealthy", "zero0": "Healthy"})
    assert node.reasons()["null0"] == HELD % OLD


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


async def test_a_kubelet_that_does_not_list_its_pods_yet_frees_no_device(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real kubelet answers a second before it hears of its pods (seen: 1.37.2)."""
    listed = queries._listed
    asked = 0

    async def without_pods(kubelet_root: str) -> Listing:
        nonlocal asked
        asked += 1
        return Listing(0, [], allocatable=(await listed(kubelet_root)).allocatable)

    await node.start(resource(OLD, NULL))
    pod = await hold(kubelet, OLD)
    await node.apply(resource(NEW, NULL))
    await has(kubelet, NEW, {"null0": "Unhealthy"})
    with monkeypatch.context() as starting:
        starting.setattr(queries, "_STARTING", 3600.0)
        starting.setattr(queries, "_listed", without_pods)
        await kubelet.until(lambda: asked > 3)
        assert node.reasons() == {"null0": "held by pod %s as %s" % (pod, OLD)}
        # Once it has had the time, its list counts: the checkpoint may have pods that ended.
        starting.setattr(queries, "_STARTING", 0.0)
        await has(kubelet, NEW, {"null0": "Healthy"})


async def test_without_a_checkpoint_that_can_be_read_ids_tell_and_doubt_ends(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_directory: str) -> None:
        raise CheckpointError("unknown form")

    monkeypatch.setattr(queries, "read_checkpoint", refuse)
    await node.start(resource(OLD, NULL))
    await hold(kubelet, OLD)
    await node.apply(resource(NEW, NULL))
    await has(kubelet, NEW, {"null0": "Unhealthy"})
    assert node.reasons()["null0"] == HELD % OLD


async def test_while_what_containers_were_given_cannot_be_read_what_was_known_stays(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another id, so that only what the container was given tells."""
    asked = 0

    def hang(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise NoAnswer("did not answer in 2 s")

    await node.start(resource(OLD, NULL))
    pod = await hold(kubelet, OLD)
    await node.apply(resource(NEW, device("other", "/dev/null")))
    assert node.reasons() == {"other": HELD % OLD}
    with monkeypatch.context() as patched:
        patched.setattr(queries, "_pods_and_specs", hang)
        await kubelet.until(lambda: asked > 3)
        assert node.reasons() == {"other": HELD % OLD}
    await kubelet.remove_pod(pod)
    await has(kubelet, NEW, {"other": "Healthy"})


async def test_while_nobody_says_who_holds_what_a_renamed_device_stays_withheld(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.start(resource(OLD, NULL))
    await kubelet.registered(OLD)
    asked = 0

    async def nobody(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise OSError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(queries, "holders", nobody)
        await node.apply(resource(NEW, NULL))
        await kubelet.until(lambda: asked > 3)
        assert node.reasons() == {"null0": IN_DOUBT}
    await has(kubelet, NEW, {"null0": "Healthy"})


async def test_a_scan_ends_no_doubt(node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.start(resource(OLD, NULL))
    await hold(kubelet, OLD)

    async def nobody(*_: object) -> None:
        raise OSError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(queries, "holders", nobody)
        await node.apply(resource(NEW, NULL))
        assert node.resources is not None
        await node.resources.check()
        assert node.reasons() == {"null0": f"held by {ADMITTED} as {OLD}"}
    await kubelet.until(lambda: node.reasons() == {"null0": HELD % OLD}, 10, "it is not asked again")


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


async def test_who_holds_what_is_asked_once_for_each_configuration(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "HOLDERS_PERIOD", 600.0)
    asked, holders = [0], queries.holders

    async def counted(*arguments: Any) -> Any:
        asked[0] += 1
        return await holders(*arguments)

    monkeypatch.setattr(queries, "holders", counted)
    await node.start(resource(OLD, NULL))
    assert asked == [1]
    await node.apply(resource(OLD, NULL))
    assert asked == [2]
    await node.apply(resource(NEW, NULL))
    assert asked == [3]


async def test_a_free_device_is_offered_by_its_new_name_at_once(node: Node, kubelet: StandInKubelet) -> None:
    await node.start(resource(OLD, NULL))
    await kubelet.registered(OLD)
    lists = recorded(kubelet, NEW)
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
    assert str(node.reasons()["null1"]).startswith("held by ")
    await kubelet.until(lambda: node.reasons() == {"null1": HELD % OLD}, 10, "the pod is not known")


async def test_what_several_devices_give_is_held_and_tells_none_apart(node: Node, kubelet: StandInKubelet) -> None:
    control, mount = {"path": "/dev/full"}, {"host_path": "/dev/random", "container_path": "/dev/x"}
    cameras = [
        {"id": name, "nodes": [{"path": path}, control]} for name, path in (("c0", "/dev/null"), ("c1", "/dev/zero"))
    ]
    await node.start(resource(OLD, *cameras, container_edits={"mounts": [mount]}))
    await hold(kubelet, OLD)
    folder = str(node.folder)
    (held,) = (await queries.holders(folder, folder + "/dp", [folder + "/cdi"])).held
    own = {"c0": "/dev/null", "c1": "/dev/zero"}[held.device]
    assert held.host_paths == (own,)
    assert held.all_host_paths == tuple(sorted([own, "/dev/full", "/dev/random"]))
    assert held.cdi_names == (f"{OLD}={held.device}",)


FIRST, SECOND = "first", "second"


@pytest.fixture(params=["a reload", "a restart"])
def change(request: pytest.FixtureRequest, node: Node) -> Callable[..., Awaitable[None]]:
    """How the plugin comes by another configuration."""

    async def changed(*resources: dict[str, Any]) -> None:
        if request.param == "a reload":
            await node.apply(*resources)
        else:
            await node.stop()
            await node.start(*resources)

    return changed


async def test_a_held_name_means_the_same_device_until_it_is_free(
    node: Node, kubelet: StandInKubelet, change: Callable[..., Awaitable[None]]
) -> None:
    """The container comes back with it after its restart, by a CDI name."""
    null, zero = device(FIRST, "/dev/null"), device(SECOND, "/dev/zero")
    await node.start(resource(OLD, null))
    pod = await hold(kubelet, OLD)
    await node.apply(resource(OLD, null, zero))
    swapped = {**null, "nodes": zero["nodes"]}, {**zero, "nodes": null["nodes"]}
    await change(resource(OLD, *swapped, device("third"), env={"DEV_{index}": "{id}"}))
    await has(kubelet, OLD, {FIRST: "Unhealthy", SECOND: "Unhealthy", "third": "Healthy"})
    moved = " with /dev/null: its id now means /dev/zero"
    assert node.reasons()[FIRST] == HELD % OLD + moved
    assert told(node.reasons()[FIRST] or "") == f"held by another pod or claim as {OLD}{moved}"
    assert node.reasons()[SECOND] == HELD % OLD
    assert given(node.folder)[FIRST] == "/dev/null"
    with pytest.raises(PodRejected):
        await kubelet.allocate_pod("thief", {"main": {OLD: 2}})
    await kubelet.remove_pod(pod)
    await has(kubelet, OLD, dict.fromkeys([FIRST, SECOND, "third"], "Healthy"))
    assert given(node.folder) == {FIRST: "/dev/zero", SECOND: "/dev/null"}


async def test_a_free_name_means_another_device_once_the_reload_is_done(
    node: Node, kubelet: StandInKubelet, change: Callable[..., Awaitable[None]]
) -> None:
    await node.start(resource(OLD, device(FIRST, "/dev/null")))
    await kubelet.registered(OLD)
    await change(resource(OLD, device(FIRST, "/dev/zero")))
    assert node.reasons() == {FIRST: None}
    assert given(node.folder) == {FIRST: "/dev/zero"}


async def test_a_link_that_moves_takes_no_device_from_its_container(node: Node, kubelet: StandInKubelet) -> None:
    by_id = node.folder / "by-id"
    by_id.mkdir()
    links = {name: by_id / name for name in ("lamp", "meter")}
    links["lamp"].symlink_to("/dev/null")
    links["meter"].symlink_to("/dev/zero")
    await node.start(resource(OLD, device(FIRST, str(links["lamp"]))))
    pod = await hold(kubelet, OLD)
    links["lamp"].unlink()
    links["lamp"].symlink_to("/dev/full")
    assert node.resources is not None
    await node.resources.check()
    moved = HELD % OLD + " with /dev/null: its link now leads to %s"
    assert node.reasons() == {FIRST: moved % "/dev/full"}
    assert given(node.folder) == {FIRST: "/dev/null"}
    await node.apply(resource(OLD, device(FIRST, str(links["meter"]))))
    assert node.reasons() == {FIRST: moved % "/dev/zero"}
    assert given(node.folder) == {FIRST: "/dev/null"}
    await kubelet.remove_pod(pod)
    await has(kubelet, OLD, {FIRST: "Healthy"})
    assert given(node.folder) == {FIRST: "/dev/zero"}


async def test_one_more_node_makes_no_other_device(node: Node, kubelet: StandInKubelet) -> None:
    await node.start(resource(OLD, device(FIRST, "/dev/null")))
    await hold(kubelet, OLD)
    await node.apply(resource(OLD, {"id": FIRST, "nodes": [{"path": "/dev/null"}, {"path": "/dev/zero"}]}))
    assert node.reasons() == {FIRST: None}
    assert given(node.folder) == {FIRST: "/dev/zero"}


async def test_an_id_is_free_for_another_resource_when_its_device_is_long_gone_and_nobody_holds_it(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card that gets another driver, and with it another resource; and ever new serial numbers."""
    monkeypatch.setattr("node_device_plugin.devices.table.FORGOTTEN_AFTER", 0.0)
    first, second = node.folder / "first", node.folder / "second"
    first.symlink_to("/dev/null")
    await node.start({"name": OLD, "discover": {"paths": [str(first), str(second)]}})
    pod = await hold(kubelet, OLD)
    first.unlink()
    second.symlink_to("/dev/zero")
    assert node.resources is not None
    await node.resources.check()
    gone, new = (device.id for table in node.resources.tables for device in table.resource.devices)
    await node.resources.prune()
    await has(kubelet, OLD, {gone: "Unhealthy", new: "Healthy"})
    await kubelet.remove_pod(pod)
    await node.resources.prune()
    await has(kubelet, OLD, {new: "Healthy"})
    assert list(node.reasons()) == [new]


async def test_a_device_goes_to_another_resource_when_its_id_is_free(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A PCI device keeps its address, and so its id, when it is another device after an update of its firmware."""
    address, machine = "0000:3b:00.0", Machine(tmp_path)

    def is_now(model: str) -> None:
        machine.on_bus("pci", "pci0000:00/" + address, vendor="0x10de", device="0x" + model, **{"class": "0x030200"})

    models = {OLD: "0001", NEW: "0002"}
    resources = [
        {"name": name, "discover": {"pci": [{"device": model}]}, "env": {f"PCI_{model}_{{index}}": "{address}"}}
        for name, model in models.items()
    ]
    is_now(models[OLD])
    await node.start()
    assert node.resources is not None
    scanner = node.resources._scanner
    scanner._discoverer = Discoverer(scanner.links, str(machine.path))
    await node.apply(*resources)
    pod = await hold(kubelet, OLD)
    is_now(models[NEW])
    for _ in range(2):
        await node.resources.check()
        await node.resources.prune()
        await has(kubelet, OLD, {"pci-" + address: "Unhealthy"})
        await has(kubelet, NEW, {})
        assert [len(table.resource.devices) for table in node.resources.tables] == [1, 0]
        # From now on it is gone for long, and a pod holds it.
        monkeypatch.setattr("node_device_plugin.devices.table.FORGOTTEN_AFTER", 0.0)
    await kubelet.remove_pod(pod)
    await node.resources.prune()
    await node.resources.check()
    await has(kubelet, OLD, {})
    await has(kubelet, NEW, {"pci-" + address: "Healthy"})


async def test_a_device_that_is_long_gone_only_after_the_kubelet_was_asked_is_not_forgotten(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = node.folder / "first"
    path.symlink_to("/dev/null")
    await node.start({"name": OLD, "discover": {"paths": [str(path)]}})
    await hold(kubelet, OLD)
    path.unlink()
    assert node.resources is not None
    await node.resources.check()

    async def no_orphans(*_: object) -> bool:
        monkeypatch.setattr("node_device_plugin.devices.table.FORGOTTEN_AFTER", 0.0)
        return False

    monkeypatch.setattr(OurSpecs, "has_orphans", no_orphans)
    await node.resources.prune()
    assert len(node.reasons()) == 1
