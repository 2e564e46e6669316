"""Pools and ResourceSlices: names, attributes, and the fewest writes."""

from __future__ import annotations

import copy
import re
from types import MappingProxyType
from typing import Any

import pytest

from node_device_plugin.declaration import Device, Resource, parse_resources
from node_device_plugin.declaration.model import Attributes, DraDriver, Version
from node_device_plugin.declaration.names import is_object_name, pool_name
from node_device_plugin.kubelet.dra.slices import (
    MAX_DEVICES,
    Pool,
    SliceDevice,
    Write,
    changes,
    device_name,
    pool_of,
    tainted,
)

DRIVER = DraDriver("dra.example.com", "w1", "")
UID = "6a1c0b1e"


def resource(*ids: str, name: str = "example.com/camera", **more: Any) -> Resource:
    devices = [{"id": each, "nodes": [{"path": f"/dev/{each}"}]} for each in ids]
    (only,) = parse_resources([{"name": name, "devices": devices}])
    return only._replace(**more)


def pool(number: int, first: int = 0, name: str = "w1/camera.example.com") -> Pool:
    return Pool(name, tuple(SliceDevice(f"d{each}", {"id": f"d{each}"}) for each in range(first, first + number)))


# Names


@pytest.mark.parametrize("device_id", ["cam0", "usb-046d-0825-abc", "0", "a--b", "x" * 63, "a-0123abcd"])
def test_an_id_that_is_a_label_is_the_name(device_id: str) -> None:
    assert device_name(device_id) == device_id


@pytest.mark.parametrize(
    ("device_id", "begins"),
    [
        ("pci-0000:3b:00.0", "pci-0000-3b-00-0--"),
        ("Cam_0", "cam-0--"),
        ("cam.0", "cam-0--"),
        ("0-", "0--"),
        ("___", "x--"),
        ("x" * 64, "x" * 45 + "--"),
        ("a" * 44 + "-" + "b" * 30, "a" * 44 + "--"),
    ],
)
def test_any_other_id_is_hashed_behind_a_readable_beginning(device_id: str, begins: str) -> None:
    name = device_name(device_id)
    assert re.fullmatch(re.escape(begins) + "[0-9a-f]{16}", name)
    assert len(name) <= 63
    assert name == device_name(device_id)


def test_names_of_different_ids_differ() -> None:
    ids = ["cam.0", "cam_0", "cam-0", "Cam-0", "cam:0"]
    # An id from a device's serial number must not take another device's name.
    ids += [device_name("cam.0"), device_name("cam_0")]
    assert len({device_name(each) for each in ids}) == len(ids)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("example.com/camera", r"w1\.lan/camera\.example\.com"),
        ("example.com/Cam_1.x", r"w1\.lan/cam-1-x--[0-9a-f]{16}\.example\.com"),
        # The name of a label with a point must not be that of another domain.
        ("example.com/a.b", r"w1\.lan/a-b--[0-9a-f]{16}\.example\.com"),
    ],
)
def test_a_pool_is_named_after_node_and_resource(name: str, expected: str) -> None:
    found = pool_name("w1.lan", name)
    assert re.fullmatch(expected, found)
    assert all(map(is_object_name, found.split("/")))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("n" * 63 + ".lan", r"n{63}\.lan/[ab]{45}--[0-9a-f]{16}"),
        ("n" * 189, "n{189}/[ab].*"),
        ("n" * 190, "n{45}--[0-9a-f]{16}"),
    ],
)
def test_a_pool_name_that_is_too_long_is_hashed(node: str, expected: str) -> None:
    """It keeps the node's name if possible, by which a policy judges a pod's token."""
    domains = ("d" * 180 + ".com", "d" * 180 + ".org")
    names = {pool_name(node, f"{domain}/{each}") for domain in domains for each in ("a" * 63, "b" * 63)}
    assert len(names) == 4
    assert all(re.fullmatch(expected, each) and len(each) <= 253 for each in names)


# Attributes


def attributes_of(found: Resource, device: Device) -> dict[str, Any]:
    (only,) = pool_of(DRIVER, found, [(device, None)]).devices
    return dict(only.attributes)


def test_a_device_has_its_resource_and_id_and_what_was_found() -> None:
    cameras = resource("cam0")
    found = cameras.devices[0]._replace(
        numa_node=1,
        attributes=Attributes("0000:3b:00.0", "pci0000:3a", "046d", "0825", "A50", "0000:00:14.0-1", "uvcvideo", "usb"),
    )
    assert pool_of(DRIVER, cameras, [(found, None)]) == Pool(
        "w1/camera.example.com",
        (
            SliceDevice(
                "cam0",
                {
                    "resource": "example.com/camera",
                    "id": "cam0",
                    "resource.kubernetes.io/pciBusID": "0000:3b:00.0",
                    "resource.kubernetes.io/pcieRoot": "pci0000:3a",
                    "resource.kubernetes.io/numaNode": 1,
                    "usbVendor": "046d",
                    "usbProduct": "0825",
                    "usbSerial": "A50",
                    "usbPort": "0000:00:14.0-1",
                    "driver": "uvcvideo",
                    "subsystem": "usb",
                    "path": "/dev/cam0",
                },
            ),
        ),
    )


def test_a_numa_node_of_zero_is_an_attribute() -> None:
    cameras = resource("cam0")
    assert attributes_of(cameras, cameras.devices[0]._replace(numa_node=0))["resource.kubernetes.io/numaNode"] == 0
    assert "resource.kubernetes.io/numaNode" not in attributes_of(cameras, cameras.devices[0])


def test_what_the_declaration_says_of_a_device_wins() -> None:
    cameras = resource("cam0", dra_attributes=MappingProxyType({"model": "A", "driver": "mine", "id": "x"}))
    device = cameras.devices[0]._replace(
        attributes=Attributes(driver="uvcvideo"), dra_attributes=MappingProxyType({"model": "B", "resource": "x"})
    )
    found = attributes_of(cameras, device)
    assert (found["model"], found["driver"]) == ("B", "mine")
    # A DeviceClass selects by these two.
    assert (found["id"], found["resource"]) == ("cam0", "example.com/camera")


def test_a_long_name_of_a_resource_is_shortened_and_stays_different() -> None:
    found = [attributes_of(each, each.devices[0]) for each in (resource("d", name="e.com/" + "x" * 63), resource("d"))]
    long = str(found[0]["resource"])
    assert re.fullmatch("e\\.com/x{40}--[0-9a-f]{16}", long)
    assert len(long) == 64


def test_a_value_that_does_not_fit_is_left_out_alone() -> None:
    values = {
        "fits": "x" * 64,
        "long": "x" * 65,
        "wide": "ä" * 33,
        "release": Version("1.2.3"),
        "longVersion": Version("1.2.3-" + "x" * 60),
        "large": 1 << 63,
        "small": -(1 << 63),
        "ready": False,
    }
    cameras = resource("cam0", dra_attributes=MappingProxyType(values))
    found = pool_of(DRIVER, cameras, [(each, None) for each in cameras.devices])
    names = set(found.devices[0].attributes)
    assert names == {"resource", "id", "path", "fits", "release", "small", "ready"}
    assert found.left_out == (
        "cam0: the attribute long is left out: its text has 65 bytes, at most 64 are possible",
        "cam0: the attribute wide is left out: its text has 66 bytes, at most 64 are possible",
        "cam0: the attribute longVersion is left out: its text has 66 bytes, at most 64 are possible",
        "cam0: the attribute large is left out: the number does not fit into 64 bits",
    )


def test_of_too_many_attributes_the_discovered_ones_are_left_out_last_to_first() -> None:
    cameras = resource("cam0", dra_attributes=MappingProxyType({f"a{each}": each for each in range(29)}))
    device = cameras.devices[0]._replace(attributes=Attributes(driver="uvcvideo", subsystem="usb"))
    found = pool_of(DRIVER, cameras, [(device, None)])
    attributes = found.devices[0].attributes
    assert len(attributes) == 32
    assert attributes["driver"] == "uvcvideo"
    assert found.left_out == (
        "cam0: the attribute subsystem is left out: a device has at most 32 attributes",
        "cam0: the attribute path is left out: a device has at most 32 attributes",
    )


# Slices


class Server:
    """The slices that an API server has."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[Write] = []

    def bring(self, *pools: Pool, uid: str = UID) -> list[Write]:
        """Do what ``changes`` says; returns the writes."""
        self.writes = changes(DRIVER, uid, pools, list(self.objects.values()))
        for old, new in copy.deepcopy(self.writes):
            if new is None:
                assert old is not None
                del self.objects[old["metadata"]["name"]]
            else:
                new["metadata"].setdefault("uid", "u")
                new["metadata"]["resourceVersion"] = str(int(new["metadata"].get("resourceVersion", "0")) + 1)
                self.objects[new["metadata"]["name"]] = new
        self.check(*pools)
        return self.writes

    def check(self, *pools: Pool) -> None:
        """What the API server's validation and the scheduler require."""
        left = list(self.objects.values())
        for each in pools:
            of_pool = [one["spec"] for one in left if one["spec"]["pool"]["name"] == each.name]
            left = [one for one in left if one["spec"]["pool"]["name"] != each.name]
            assert {one["pool"]["generation"] for one in of_pool} == {of_pool[0]["pool"]["generation"]}
            assert {one["pool"]["resourceSliceCount"] for one in of_pool} == {len(of_pool)}
            assert all(len(one.get("devices") or ()) <= MAX_DEVICES for one in of_pool)
            names = [device["name"] for one in of_pool for device in one.get("devices") or ()]
            assert sorted(names) == sorted(device.name for device in each.devices)
        assert left == []
        assert all(len(name) <= 63 and re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) for name in self.objects)

    @property
    def generations(self) -> set[int]:
        return {each["spec"]["pool"]["generation"] for each in self.objects.values()}


def test_the_content_of_a_slice() -> None:
    values = {"a": True, "b": 3, "c": "x", "d": Version("1.2.3"), "resource.kubernetes.io/pcieRoot": "pci0000:00"}
    ((old, new),) = changes(DRIVER, UID, [Pool("w1/camera.example.com", (SliceDevice("cam0", values),))], [])
    assert old is None
    assert new is not None
    name = new["metadata"]["name"]
    assert re.fullmatch("w1-camera-example-com-0-dra-example-com--[0-9a-f]{16}", name)
    assert new == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "w1", "uid": UID, "controller": True}],
        },
        "spec": {
            "driver": "dra.example.com",
            "nodeName": "w1",
            "pool": {"name": "w1/camera.example.com", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "cam0",
                    "attributes": {
                        "a": {"bool": True},
                        "b": {"int": 3},
                        "c": {"string": "x"},
                        "d": {"version": "1.2.3"},
                        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
                    },
                }
            ],
        },
    }


def test_an_unhealthy_device_has_a_taint_in_place_and_keeps_its_time() -> None:
    server = Server()
    server.bring(pool(130))
    devices = [each._replace(is_healthy=each.name not in ("d1", "d2")) for each in pool(130).devices]
    (write,) = server.bring(pool(130)._replace(devices=tuple(devices)))
    assert server.generations == {1}
    assert write.new is not None
    assert tainted(write.new) == {"d1", "d2"}
    name, spec = write.new["metadata"]["name"], server.objects[write.new["metadata"]["name"]]["spec"]
    assert len(spec["devices"]) <= 64
    taint = {"key": "nodedevices.kubernetes/unhealthy", "effect": "NoSchedule"}
    assert [each["taints"] for each in spec["devices"] if "taints" in each] == [[taint], [taint]]
    for each in spec["devices"]:
        for kept in each.get("taints", ()):
            kept["timeAdded"] = "now"
    assert server.bring(pool(130)._replace(devices=tuple(devices))) == []
    devices[2] = devices[2]._replace(is_healthy=True)
    server.bring(pool(130)._replace(devices=tuple(devices)))
    spec = server.objects[name]["spec"]
    assert [each["taints"] for each in spec["devices"] if "taints" in each] == [[{**taint, "timeAdded": "now"}]]


def test_each_share_is_a_device_that_tells_its_device() -> None:
    cameras = resource("front", "rear", replicas=2)
    found = pool_of(DRIVER, cameras, [(cameras.devices[0], None), (cameras.devices[1], "it fell off")])
    assert [re.sub("[0-9a-f]{16}$", "", each.name) for each in found.devices] == [
        "front-0--",
        "front-1--",
        "rear-0--",
        "rear-1--",
    ]
    assert [each.attributes["id"] for each in found.devices] == ["front", "front", "rear", "rear"]
    assert [each.is_healthy for each in found.devices] == [True, True, False, False]


def test_an_empty_pool_is_one_empty_slice() -> None:
    server = Server()
    assert len(server.bring(pool(0))) == 1
    (only,) = server.objects.values()
    assert "devices" not in only["spec"]
    assert server.bring(pool(0)) == []
    # As on Kubernetes 1.34.
    only["spec"]["devices"] = None
    assert server.bring(pool(0)) == []


@pytest.mark.parametrize(("devices", "slices"), [(1, 1), (64, 1), (65, 2), (128, 2), (1000, 16)])
def test_a_pool_has_as_many_slices_as_it_needs(devices: int, slices: int) -> None:
    server = Server()
    assert len(server.bring(pool(devices))) == len(server.objects) == slices
    assert server.generations == {1}
    assert server.bring(pool(devices)) == []


def test_a_change_of_one_slice_keeps_the_generation() -> None:
    server = Server()
    server.bring(pool(200))
    without = pool(200)._replace(devices=tuple(each for each in pool(200).devices if each.name != "d3"))
    (write,) = server.bring(without)
    assert write.old is not None
    assert server.generations == {1}
    # The device comes back: again one slice, although it is not the last one.
    assert len(server.bring(pool(200))) == 1
    assert server.generations == {1}


def test_a_device_that_comes_displaces_no_other() -> None:
    server = Server()
    server.bring(pool(128))
    devices = (SliceDevice("first", {}), *(each for each in pool(128).devices if each.name != "d100"))
    assert len(server.bring(pool(128)._replace(devices=devices))) == 1


def test_a_slice_with_too_many_devices_is_divided() -> None:
    """The API server allows 128 devices without taints."""
    server = Server()
    server.bring(pool(65))
    objects = sorted(server.objects.values(), key=lambda each: len(each["spec"]["devices"]))
    objects[1]["spec"]["devices"] += objects[0]["spec"].pop("devices")
    assert len(server.bring(pool(65))) == 2


def test_a_change_of_several_slices_is_a_new_generation_of_all() -> None:
    server = Server()
    server.bring(pool(200))
    changed = tuple(
        each._replace(attributes={"id": "other"}) if each.name in ("d0", "d100") else each for each in pool(200).devices
    )
    writes = server.bring(pool(200)._replace(devices=changed))
    assert len(writes) == 4
    assert server.generations == {2}


def test_a_pool_that_grows_and_shrinks() -> None:
    server = Server()
    for number, (devices, writes) in enumerate([(64, 1), (65, 2), (64, 2), (0, 1), (64, 1), (200, 4), (1, 4)]):
        assert len(server.bring(pool(devices))) == writes, number
    # What is needed comes first, because a pool without a slice of its generation is not used.
    assert [write.new is None for write in server.writes] == [False, True, True, True]


def test_pools_do_not_touch_each_other() -> None:
    server = Server()
    server.bring(pool(100), pool(3, name="w1/disk.example.com"))
    writes = server.bring(pool(100), pool(4, name="w1/disk.example.com"))
    assert [write.new["spec"]["pool"]["name"] for write in writes if write.new] == ["w1/disk.example.com"]
    (write,) = server.bring(pool(100))
    assert write.new is None
    assert write.old is not None
    assert write.old["spec"]["pool"]["name"] == "w1/disk.example.com"


def test_a_slice_that_is_missing_comes_back_alone() -> None:
    server = Server()
    server.bring(pool(200))
    # Now a device is not where it would be in a new pool.
    assert len(server.bring(pool(199, first=1))) == 1
    name = sorted(server.objects)[1]
    lost = server.objects.pop(name)
    (write,) = server.bring(pool(199, first=1))
    assert (write.old, write.new and write.new["spec"]) == (None, lost["spec"])


def test_slices_under_other_names_stay_until_they_are_not_needed() -> None:
    server = Server()
    writes = server.bring(pool(130))
    names = [str(write.new["metadata"]["name"]) for write in writes if write.new]
    instead = {names[0]: "other", "other": "another"}
    server.objects["another"] = server.objects.pop(names[0])
    server.objects["another"]["metadata"]["name"] = "another"
    existing = list(server.objects.values())
    assert changes(DRIVER, UID, [pool(130)], existing) == []
    (write,) = changes(DRIVER, UID, [pool(130)], existing[:-1], instead=instead)
    assert write.new is not None
    assert write.new["metadata"]["name"] == "another"


def test_a_foreign_slice_of_the_pool_goes_alone() -> None:
    server = Server()
    server.bring(pool(3))
    (own,) = server.objects.values()
    stranger = copy.deepcopy(own)
    stranger["metadata"]["name"] = "stranger"
    server.objects["stranger"] = stranger
    assert server.bring(pool(3)) == [Write(stranger, None)]


def test_a_higher_generation_of_a_foreign_slice_is_reached() -> None:
    server = Server()
    server.bring(pool(3))
    stranger = copy.deepcopy(next(iter(server.objects.values())))
    stranger["metadata"]["name"] = "stranger"
    stranger["spec"]["pool"]["generation"] = 7
    server.objects["stranger"] = stranger
    server.bring(pool(3))
    assert server.generations == {8}


def test_a_node_that_joined_again_owns_its_slices() -> None:
    server = Server()
    server.bring(pool(3))
    (write,) = server.bring(pool(3), uid="another")
    assert write.new is not None
    assert write.new["metadata"]["ownerReferences"][0]["uid"] == "another"


def test_a_write_keeps_the_version_and_the_labels_of_others() -> None:
    server = Server()
    server.bring(pool(3))
    (only,) = server.objects.values()
    only["metadata"]["labels"] = {"a": "b"}
    (write,) = server.bring(pool(4))
    assert write.new is not None
    assert write.new["metadata"]["labels"] == {"a": "b"}
    assert write.new["metadata"]["resourceVersion"] == write.old["metadata"]["resourceVersion"]  # type: ignore[index]
