"""Which offered devices a container holds under a name that the kubelet no longer counts."""

import pytest

from node_device_plugin.declaration import Device, Resource
from node_device_plugin.declaration.model import ContainerEdits
from node_device_plugin.devices.holdings import Holding, matches
from node_device_plugin.kubelet.device_plugin.ids import ListedId

OLD, NEW = "example.com/old", "example.com/new"


def resource(name: str, *ids: str, replicas: int = 1, cdi: tuple[str, ...] = ()) -> Resource:
    devices = [Device(each, (), ContainerEdits(), {}, required=True, cdi_devices=cdi) for each in ids]
    return Resource(name, name, tuple(devices), {}, ContainerEdits(), replicas)


def holding(name: str, kubelet_id: str, *tokens: str, holder: str = "default/pod", **also: bool) -> Holding:
    return Holding(holder, name, ListedId(kubelet_id), frozenset(tokens), **also)


def withheld(offered: Resource, tokens: dict[str, set[str]], *holdings: Holding) -> set[str]:
    by_key = {(offered.name, device_id): frozenset(each) for device_id, each in tokens.items()}
    found = matches([offered], holdings, by_key)
    assert {name for name, _device_id in found} <= {offered.name}
    return {device_id for _name, device_id in found}


@pytest.mark.parametrize(
    ("given", "is_same"),
    [(("x",), True), (("x", "more"), True), (("x", "common"), True), (("other",), False), (("common",), False)],
)
def test_a_former_name_means_the_device_that_gives_what_it_gave(given: tuple[str, ...], is_same: bool) -> None:
    tokens = {"a": {"x", "common"} if "common" in given else {"x"}, "b": {"y", "common"}}
    held = withheld(resource(NEW, "a", "b"), tokens, holding(OLD, "gone", *given))
    assert held == ({"a"} if is_same else set())


def test_a_former_name_may_have_given_less_than_the_device_gives_now() -> None:
    assert withheld(resource(NEW, "a"), {"a": {"x", "z"}}, holding(OLD, "gone", "x")) == {"a"}


def test_a_token_in_common_is_not_enough_if_each_has_another_one() -> None:
    tokens = {"a": {"shared node", "x"}}
    assert withheld(resource(NEW, "a"), tokens, holding(OLD, "gone", "shared node", "y")) == set()


def test_a_device_by_a_cdi_name_may_be_one_of_the_containers_names() -> None:
    """Its container has tokens of other devices beside, and lacks what several devices give."""
    tokens = {"a": {"x", "common"}, "b": {"common"}}
    given = holding(OLD, "gone", "x", "y")
    assert withheld(resource(NEW, "a", "b"), tokens, given) == set()
    by_cdi = resource(NEW, "a", "b", cdi=("vendor.com/x=0",))
    assert withheld(by_cdi, tokens, given) == {"a"}
    assert withheld(by_cdi, {**tokens, "a": {"x", "z"}}, given) == set()
    # By its own name, the kubelet counts the device.
    assert withheld(by_cdi, tokens, given._replace(resource=NEW, held_id=ListedId("a"))) == set()


def test_the_id_decides_if_the_container_has_only_what_several_devices_give() -> None:
    tokens = {"a": {"x", "common"}, "b": {"common"}}
    assert withheld(resource(NEW, "a", "b"), tokens, holding(OLD, "a", "common")) == {"a"}


@pytest.mark.parametrize(
    ("kubelet_id", "tokens", "given", "is_ours", "held"),
    [
        ("a", set(), (), True, {"a"}),
        ("a::1", set(), (), True, {"a"}),
        ("b", set(), (), True, set()),
        ("a", set(), (), False, set()),
        ("a", {"x"}, (), True, {"a"}),
        ("a", set(), ("x",), True, {"a"}),
        ("a", {"x"}, ("y",), True, set()),
    ],
)
def test_the_id_decides_if_one_side_gives_nothing_of_its_own(
    kubelet_id: str, tokens: set[str], given: tuple[str, ...], is_ours: bool, held: set[str]
) -> None:
    former = holding(OLD, kubelet_id, *given, is_ours=is_ours)
    assert withheld(resource(NEW, "a"), {"a": tokens}, former) == held


@pytest.mark.parametrize(
    ("replicas", "is_share", "held"), [(1, False, {"a"}), (1, True, {"a"}), (2, False, {"a"}), (2, True, set())]
)
def test_only_a_device_that_was_and_is_shared_stays_free(replicas: int, is_share: bool, held: set[str]) -> None:
    former = holding(OLD, "a::0" if is_share else "a", "x", is_share=is_share)
    assert withheld(resource(NEW, "a", replicas=replicas), {"a": {"x"}}, former) == held


@pytest.mark.parametrize(
    ("tokens", "given", "others"),
    [
        ({"x"}, ("x",), set()),
        ({"x", "z"}, ("x",), set()),
        ({"x"}, ("x", "y"), set()),
        ({"x"}, (), set()),
        (set(), ("y",), set()),
        # Its name means another device now, and the held device has another name.
        ({"x"}, ("y",), {"b"}),
    ],
)
def test_the_kubelet_keeps_a_device_whose_name_still_means_it(
    tokens: set[str], given: tuple[str, ...], others: set[str]
) -> None:
    assert withheld(resource(NEW, "a", "b"), {"a": tokens, "b": {"y"}}, holding(NEW, "a", *given)) == others


def test_the_kubelet_keeps_no_device_whose_share_it_does_not_know() -> None:
    shared = resource(NEW, "a", replicas=2)
    assert withheld(shared, {"a": {"x"}}, holding(NEW, "a", "x")) == {"a"}
    assert withheld(shared, {"a": {"x"}}, holding(NEW, "a::1", "x")) == set()
    assert withheld(shared, {"a": {"x"}}, holding(NEW, "a::2", "x")) == {"a"}


def test_a_containers_other_devices_are_not_held_twice() -> None:
    """One answer covers all devices of a resource, so the held device has their tokens, too."""
    offered, tokens = resource(NEW, "a", "b"), {"a": {"x"}, "b": {"y"}}
    former = holding(OLD, "gone", "x", "y")
    assert withheld(offered, tokens, former) == {"a", "b"}
    assert withheld(offered, tokens, former, holding(NEW, "a", "x")) == {"b"}
    assert withheld(offered, tokens, former, holding(NEW, "a", "x", holder="default/other")) == {"a", "b"}
    # Of a pod that the kubelet is still admitting, or of a record, the holder is unknown.
    nobody = former._replace(holder="")
    assert withheld(offered, tokens, nobody, holding(NEW, "a", "x", holder="")) == {"a", "b"}


def test_each_holding_is_told_once() -> None:
    former = holding(OLD, "a", "x", "y")
    assert matches([resource(NEW, "a")], [former], {(NEW, "a"): frozenset("xy")}) == {(NEW, "a"): [former]}
