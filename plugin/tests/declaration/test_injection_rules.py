"""How devices are given: what cannot work is refused, with the path of its field."""

from typing import Any

import pytest
import yaml

from node_device_plugin.declaration import DeclarationError, parse_resources
from node_device_plugin.declaration.device_plugin_api import LIMIT, kubelet_ids, listed_size, longest_device_id
from node_device_plugin.declaration.serialise import resources_to_data
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api


def problems(text: str) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        parse_resources(yaml.safe_load(text))
    return [str(problem).replace(" (example.com/dev)", "") for problem in caught.value.problems]


def test_what_only_cdi_can_do_is_refused_without_it() -> None:
    found = problems(
        """
        - name: example.com/dev
          injection: device_nodes
          container_edits:
            additional_gids: [44]
            hooks: [{name: prestart, path: /bin/true}]
            mounts: [{host_path: tmpfs, container_path: /tmp, type: tmpfs, options: [nosuid]}]
          devices: [{id: d0, nodes: [{path: /dev/d, gid: 44, mode: "0660", uid: 1000}]}]
        """
    )
    only = ": works only with CDI: remove it, or set injection: cdi instead of device_nodes"
    assert found == [
        "resources[0].container_edits.hooks" + only,
        "resources[0].container_edits.additional_gids" + only,
        "resources[0].container_edits.mounts[0].type" + only,
        "resources[0].container_edits.mounts[0].options: with injection: device_nodes, only bind, rbind, ro, rw are "
        "possible, not 'nosuid'",
        "resources[0].devices[0] (d0).nodes[0].uid" + only,
        "resources[0].devices[0] (d0).nodes[0].gid" + only,
        "resources[0].devices[0] (d0).nodes[0].mode" + only,
    ]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("pre_start: {timeout: 5}", "resources[0].pre_start.command: is missing"),
        ("pre_start: {command: [reset]}", "resources[0].pre_start.command[0]: must be the absolute path"),
        ("pre_start: {command: [/bin/x], timeout: 30}", "resources[0].pre_start.timeout: must be at most 25"),
        ("container_limit: 0", "resources[0].container_limit: must be at least 1"),
        ("preference: best", "resources[0].preference: must be one of packed, distributed, numa"),
        ("annotations: {cdi.k8s.io/x: y}", "resources[0].annotations.cdi.k8s.io/x: must not begin with 'cdi.k8s.io/'"),
        ("annotations: {io.kubernetes.x: y}", "resources[0].annotations.io.kubernetes.x: must not begin with 'io.kube"),
        ("annotations: {'': y}", "resources[0].annotations.: is empty"),
        ("annotations: {x: '{port}'}, devices: [{id: d}]", "resources[0].annotations.x: {port} is not a property of"),
        ("env: {D: x}, devices: [{id: d, numa_node: -1}]", "resources[0].devices[0] (d).numa_node: must be at least 0"),
        (
            "env: {D: x}, devices: [{id: d, numa_node: 99999999999999999999}]",
            "resources[0].devices[0] (d).numa_node: must be at",
        ),
    ],
)
def test_refusals(keys: str, says: str) -> None:
    (found,) = problems("[{name: example.com/dev, %s}]" % keys)
    assert found.startswith(says)


def test_two_devices_at_one_path_of_a_container() -> None:
    found = problems(
        """
        - name: example.com/dev
          container_edits: {mounts: [{host_path: /srv/all, container_path: /all}]}
          devices:
            - {id: d0, nodes: [{path: /dev/d, host_path: /dev/d0}, {path: /dev/control}]}
            - {id: d1, nodes: [{path: /dev/d, host_path: /dev/d1}, {path: /dev/control}]}
            - {id: d2, container_edits: {mounts: [{host_path: /srv/2, container_path: /data}]}}
            - {id: d3, container_edits: {mounts: [{host_path: /srv/3, container_path: /data}]}}
            - {id: d4, nodes: [{path: /all, host_path: /dev/d4}]}
            - {id: d5, nodes: [{path: /dev/e, permissions: r}]}
            - {id: d6, nodes: [{path: /dev/e}]}
        """
    )
    both = ": a container with both devices would get only one of them: choose another path, or set container_limit: 1"
    assert found == [
        "resources[0].devices[1] (d1).nodes[0].path: is also the path of resources[0].devices[0] (d0).nodes[0].path"
        + both,
        "resources[0].devices[3] (d3).container_edits.mounts[0].container_path: is also the path of "
        "resources[0].devices[2] (d2).container_edits.mounts[0].container_path" + both,
        "resources[0].devices[4] (d4).nodes[0].path: is also the path of "
        "resources[0].container_edits.mounts[0].container_path: a container would get only one of them",
        "resources[0].devices[6] (d6).nodes[0].path: is also the path of resources[0].devices[5] (d5).nodes[0].path"
        + both,
    ]


@pytest.mark.parametrize("keys", ["container_limit: 1", "replicas: 2, container_limit: 1"])
def test_one_device_at_a_time_may_have_the_path_of_another(keys: str) -> None:
    devices = "{id: d0, nodes: [{path: /dev/d, host_path: /dev/d0}]}, {id: d1, nodes: [{path: /dev/d}]}"
    (resource,) = parse_resources(yaml.safe_load("[{name: example.com/dev, %s, devices: [%s]}]" % (keys, devices)))
    assert [device.nodes[0].host_path for device in resource.devices] == ["/dev/d0", "/dev/d"]


def test_a_device_collides_with_itself_whatever_the_limit() -> None:
    (found,) = problems(
        """
        - name: example.com/dev
          container_limit: 1
          devices:
            - id: d0
              nodes: [{path: /dev/d}]
              container_edits: {mounts: [{host_path: /srv, container_path: /dev/d}]}
        """
    )
    assert found == (
        "resources[0].devices[0] (d0).container_edits.mounts[0].container_path: is also the path of "
        "resources[0].devices[0] (d0).nodes[0].path: a container would get only one of them"
    )


def test_two_resources_may_not_give_one_container_the_same_name() -> None:
    found = problems(
        """
        - {name: example.com/dev, annotations: {x: y}, env: {A: "1"}, devices: [{id: d0}]}
        - {name: example.com/other, annotations: {x: z}, devices: [{id: d1}]}
        - {name: example.com/plain, injection: device_nodes, container_edits: {env: [A=2]}, devices: [{id: d2}]}
        """
    )
    assert found == [
        "resources[1] (example.com/other).annotations.x: the annotation x is also set by example.com/dev (x), and "
        "a container may request both: rename one",
        "resources[2] (example.com/plain).container_edits.env: the variable A is also set by example.com/dev (A), and "
        "a container may request both: rename one",
    ]


@pytest.mark.parametrize("replicas", [1, 2, 10, 11, 100, 101])
def test_the_room_for_a_shares_number_is_what_the_longest_takes(replicas: int) -> None:
    """A discovered device's id leaves so much room, or the kubelet would get ids that are too long."""
    raw = {"name": "example.com/dev", "devices": [{"id": "d"}], "env": {"DEV": "x"}, "replicas": replicas}
    (resource,) = parse_resources([raw])
    longest = resource.devices[0]._replace(id="d" * longest_device_id(resource))
    assert max(map(len, kubelet_ids(resource, longest))) == 63


@pytest.mark.parametrize("replicas", [1, 7, 101])
@pytest.mark.parametrize("numa_node", [None, 0, 1, 300])
@pytest.mark.parametrize("device_id", ["d", "d" * 55, "\u00e4" * 50])
def test_a_list_is_never_larger_than_its_size(replicas: int, numa_node: Any, device_id: str) -> None:
    device = {"id": device_id, "numa_node": numa_node}
    raw = {"name": "example.com/dev", "devices": [device], "env": {"DEV": "x"}, "replicas": replicas}
    (resource,) = parse_resources([raw])
    message = api.ListAndWatchResponse()
    for kubelet_id in kubelet_ids(resource, resource.devices[0]):
        listed = message.devices.add(ID=kubelet_id, health="Unhealthy")
        if numa_node is not None:
            listed.topology.nodes.add(ID=numa_node)
    too_many = (5 if numa_node is None else 11) * replicas
    assert message.ByteSize() <= listed_size(resource, resource.devices[0]) <= message.ByteSize() + too_many


def test_more_than_the_kubelet_takes_is_refused_with_the_number_that_it_takes() -> None:
    """Complaint 11: ListAndWatch over 4 MiB."""
    devices = [{"id": "device-%05d" % number} for number in range(1000)]
    raw: dict[str, Any] = {"name": "example.com/dev", "replicas": 1000, "env": {"DEV_{index}": "{id}"}}
    (found,) = problems(yaml.safe_dump([{**raw, "devices": devices}]))
    (resource,) = parse_resources([{**raw, "devices": devices[:1]}])
    fitting = LIMIT // listed_size(resource, resource.devices[0])
    assert found == (
        "resources[0].devices: the kubelet accepts a list of at most 4194304 bytes: only %d of these 1000 devices "
        "with 1000 replicas each fit; split the resource" % fitting
    )
    assert parse_resources([{**raw, "devices": devices[:fitting]}])


def test_nonsense_is_refused_before_anybody_counts_it_out() -> None:
    (found,) = problems("[{name: example.com/dev, replicas: 999999999999, devices: [{id: d}], env: {D: x}}]")
    assert "replicas: is too high: the shares of one device" in found


def test_as_data_again() -> None:
    data: dict[str, Any] = {
        "name": "example.com/dev",
        "devices": [{"id": "d", "numa_node": 1}],
        "container_limit": 1,
        "preference": "numa",
        "pre_start": {"command": ["/bin/reset", "now"], "timeout": 3},
        "injection": "device_nodes",
        "annotations": {"x-{index}": "{id}"},
    }
    assert resources_to_data(parse_resources([data])) == [data]
