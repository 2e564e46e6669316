"""The DeviceClasses of resources with api: dra: created with the first node, deleted with the last one."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Conflict,
    LacksRights,
    NotFound,
    Place,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import device_classes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.device_classes import Use
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError

CAMERA, DONGLE, DRIVER = "example.com/camera", "example.com/dongle", "nodedevices.kubernetes"
OURS = {"app.kubernetes.io/managed-by": "nodedevices"}
NODES = "nodedevices.kubernetes/nodes"
API = "resource.k8s.io/v1"


class Cluster:
    """The part of Api that the code uses, with objects in memory.

    refusal: of a list of classes. names_resources: whether it has the gate DRAExtendedResource.
    """

    def __init__(self, *nodes, refusal=None, names_resources=True):
        self.nodes, self.classes, self.writes, self.refusal = list(nodes), {}, [], refusal
        self.names_resources, self.dry_run = names_resources, False
        #: The versions of the nodes' kubelets; a node that is not here has none yet.
        self.kubelets = {}
        self.before_write = lambda: None
        #: The DaemonSets that exist, as namespace/name; None for a user who may not read them.
        self.daemon_sets = set()

    def list(self, place, labelSelector=None):
        if place == Place("nodes"):
            infos = {name: {"kubeletVersion": self.kubelets.get(name)} for name in self.nodes}
            return [{"metadata": {"name": name}, "status": {"nodeInfo": info}} for name, info in infos.items()]
        if self.refusal:
            raise self.refusal
        assert place == Place("deviceclasses", group=API)
        assert labelSelector in (None, "app.kubernetes.io/managed-by=nodedevices")
        every = copy.deepcopy(list(self.classes.values()))
        return [each for each in every if labelSelector is None or each["metadata"]["labels"] == OURS]

    def names(self, place):
        assert place == Place("nodes")
        return set(self.nodes)

    def get(self, place):
        assert place.kinds == "daemonsets"
        if self.daemon_sets is None:
            raise LacksRights("no")
        return {} if f"{place.namespace}/{place.name}" in self.daemon_sets else None

    def dry(self):
        client = copy.copy(self)
        client.dry_run, client.classes, client.writes = True, copy.deepcopy(self.classes), []
        return client

    def stored(self, spec):
        """A spec as a server without the gate stores it."""
        kept = copy.deepcopy(spec)
        return kept if self.names_resources else {key: kept[key] for key in kept if key != "extendedResourceName"}

    def create(self, place, content):
        self.before_write()
        assert place == Place("deviceclasses", group=API)
        name = content["metadata"]["name"]
        if name in self.classes:
            raise Conflict(name)
        self.writes.append(("create", name))
        metadata = {**content["metadata"], "uid": f"uid-{name}", "resourceVersion": "1"}
        self.classes[name] = {**copy.deepcopy(content), "metadata": metadata, "spec": self.stored(content["spec"])}
        return copy.deepcopy(self.classes[name])

    def merge(self, place, content):
        if not self.dry_run:
            self.before_write()
        found = self.classes[place.name]
        if content["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise Conflict(place.name)
        self.writes.append(("merge", place.name))
        found["metadata"]["annotations"] = content["metadata"]["annotations"]
        found["metadata"]["resourceVersion"] += "1"
        found["spec"] = self.stored({**found["spec"], **content["spec"]})
        return copy.deepcopy(found)

    def delete(self, place, uid):
        assert self.classes.pop(place.name)["metadata"]["uid"] == uid
        self.writes.append(("delete", place.name))

    def users(self):
        return {name: each["metadata"]["annotations"][NODES] for name, each in self.classes.items()}


def use(node, *resources, driver=DRIVER):
    return Use(node, frozenset(resources), driver)


def run(cluster, *uses):
    """The classes that a run changes: for each, whether it was and is there."""
    changes = device_classes.converge(cluster, uses)
    return {each.what: (each.before is not None, each.after is not None) for each in changes if each.changed}


def test_a_class_selects_the_resources_devices_by_attributes_that_each_device_has():
    cluster = Cluster("a")
    assert run(cluster, use("a", CAMERA)) == {"deviceclass camera.example.com": (False, True)}
    found = cluster.classes["camera.example.com"]
    assert (found["apiVersion"], found["kind"], found["metadata"]["labels"]) == (API, "DeviceClass", OURS)
    expression = (
        'device.driver == "nodedevices.kubernetes" && has(device.attributes["nodedevices.kubernetes"].resource) && '
        'device.attributes["nodedevices.kubernetes"].resource == "example.com/camera"'
    )
    assert found["spec"] == {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": CAMERA}


def test_a_second_run_writes_nothing():
    cluster = Cluster("a", "b")
    uses = use("a", CAMERA), use("b", CAMERA, DONGLE)
    assert len(run(cluster, *uses)) == 2
    cluster.writes.clear()
    assert (run(cluster, *uses), cluster.writes) == ({}, [])
    assert cluster.users() == {"camera.example.com": '["a", "b"]', "dongle.example.com": '["b"]'}


def test_a_class_goes_with_its_last_node():
    cluster = Cluster("a", "b")
    run(cluster, use("a", CAMERA), use("b", CAMERA))
    assert run(cluster, use("a")) == {"deviceclass camera.example.com": (True, True)}
    assert cluster.users() == {"camera.example.com": '["b"]'}
    assert run(cluster, use("b", DONGLE)) == {
        "deviceclass camera.example.com": (True, False),
        "deviceclass dongle.example.com": (False, True),
    }
    assert cluster.users() == {"dongle.example.com": '["b"]'}


def test_a_node_that_left_the_cluster_keeps_no_class():
    cluster = Cluster("a", "b")
    run(cluster, use("a", CAMERA), use("b", CAMERA))
    cluster.nodes.remove("b")
    run(cluster, use("a"))
    assert cluster.classes == {}


def test_a_profile_keeps_a_class_until_its_daemonset_goes():
    cluster, pool = Cluster("a"), device_classes.profile("node-devices", "pool")
    cluster.daemon_sets = {pool}
    run(cluster, use("a", CAMERA), use(pool, CAMERA))
    assert cluster.users() == {"camera.example.com": '["a", "node-devices/pool"]'}
    assert run(cluster, use("a")) == {"deviceclass camera.example.com": (True, True)}
    assert cluster.users() == {"camera.example.com": '["node-devices/pool"]'}
    # Whoever may not read DaemonSets deletes nothing of others.
    cluster.daemon_sets = None
    assert run(cluster, use("a")) == {}
    cluster.daemon_sets = set()
    assert run(cluster, use("a")) == {"deviceclass camera.example.com": (True, False)}


def test_the_class_of_a_profile_goes_with_the_profile():
    cluster, pool = Cluster(), device_classes.profile("node-devices", "pool")
    run(cluster, use(pool, CAMERA))
    assert run(cluster, use(pool)) == {"deviceclass camera.example.com": (True, False)}


def test_a_class_without_a_readable_record_goes():
    cluster = Cluster("a")
    run(cluster, use("a", CAMERA))
    for text in ("{", "3", "[[]]"):
        cluster.classes["camera.example.com"]["metadata"]["annotations"] = {NODES: text}
        assert run(cluster, use("a", CAMERA)) == {"deviceclass camera.example.com": (True, True)}
    cluster.classes["camera.example.com"]["metadata"]["annotations"] = {NODES: "{"}
    run(cluster, use("a"))
    assert cluster.classes == {}


def test_another_name_of_the_driver():
    cluster = Cluster("a", "b")
    run(cluster, use("a", CAMERA), use("b", CAMERA))
    with pytest.raises(DeploymentError, match=r"^deviceclass camera.example.com selects other devices, and b uses it"):
        run(cluster, use("a", CAMERA, driver="d.example.com"))
    with pytest.raises(DeploymentError, match=r"different names of the DRA driver \(d.example.com, nodedevices"):
        run(cluster, use("a", CAMERA, driver="d.example.com"), use("b", CAMERA))
    run(cluster, *(use(node, CAMERA, driver="d.example.com") for node in "ab"))
    assert "d.example.com" in cluster.classes["camera.example.com"]["spec"]["selectors"][0]["cel"]["expression"]


def foreign(name, **spec):
    return {"metadata": {"name": name, "labels": {}, "uid": "x"}, "spec": spec}


def test_a_class_of_others_stays():
    cluster = Cluster("a")
    theirs = foreign("camera.example.com")
    cluster.classes["camera.example.com"] = theirs
    run(cluster, use("a"))
    with pytest.raises(DeploymentError, match=r"^deviceclass camera.example.com belongs to others.*example.com/camera"):
        run(cluster, use("a", CAMERA))
    assert (cluster.writes, cluster.classes) == ([], {"camera.example.com": theirs})


def test_another_class_with_the_name_of_a_resource_is_refused_before_the_first_write():
    cluster = Cluster("a")
    cluster.classes["gpu.vendor.com"] = foreign("gpu.vendor.com", extendedResourceName=DONGLE)
    with pytest.raises(DeploymentError) as error:
        run(cluster, use("a", CAMERA, DONGLE))
    assert str(error.value) == (
        "deviceclass dongle.example.com cannot have the extendedResourceName example.com/dongle, because deviceclass "
        "gpu.vendor.com has it: remove it from gpu.vendor.com, or rename the resource"
    )
    assert cluster.writes == []
    run(cluster, use("a", CAMERA))
    assert cluster.writes == [("create", "camera.example.com")]


def test_a_class_of_an_older_release_gets_the_name_of_its_resource():
    cluster = Cluster("a", "b")
    run(cluster, use("a", CAMERA), use("b", CAMERA))
    del cluster.classes["camera.example.com"]["spec"]["extendedResourceName"]
    assert device_classes.without_name(cluster, [CAMERA, DONGLE]) == [CAMERA]
    # A node that no longer uses the class changes only the record, which is no reason to name resources.
    changes = device_classes.converge(cluster, [use("b")])
    assert device_classes.nameless(changes, [use("b")]) == set()
    changes = device_classes.converge(cluster, [use("a", CAMERA)])
    assert [each.after["extendedResourceName"] for each in changes] == [CAMERA]
    assert device_classes.without_name(cluster, [CAMERA]) == []
    assert device_classes.nameless(changes, [use("a", CAMERA)]) == set()


@pytest.mark.parametrize("user", ["a", "node-devices/pool"])
def test_a_class_gets_the_name_only_when_no_kubelet_would_start_a_pod_without_its_device(user):
    cluster = Cluster("a", "b")
    cluster.daemon_sets = {"node-devices/pool"}
    cluster.kubelets = {"a": "v1.35.6", "b": "v1.36.0"}
    of_a = use(user, CAMERA)
    changes = device_classes.converge(cluster, [of_a, use("b", DONGLE)])
    assert device_classes.nameless(changes, [of_a]) == {CAMERA}
    assert "extendedResourceName" not in cluster.classes["camera.example.com"]["spec"]
    assert cluster.classes["dongle.example.com"]["spec"]["extendedResourceName"] == DONGLE
    # A run for another node of the class does not name it either.
    run(cluster, use("b", CAMERA))
    assert device_classes.without_name(cluster, [CAMERA]) == [CAMERA]
    cluster.kubelets["a"] = "v1.36.0"
    run(cluster, use("b", CAMERA))
    assert device_classes.without_name(cluster, [CAMERA]) == []


def test_a_server_without_the_gate_drops_the_name_and_a_second_run_writes_nothing():
    cluster = Cluster("a", "b", names_resources=False)
    changes = device_classes.converge(cluster, [use("a", CAMERA)])
    assert device_classes.nameless(changes, [use("a", CAMERA)]) == {CAMERA}
    assert device_classes.without_name(cluster, [CAMERA]) == [CAMERA]
    cluster.writes.clear()
    again = device_classes.converge(cluster, [use("a", CAMERA)])
    assert ([each.changed for each in again], cluster.writes) == ([False], [])
    assert device_classes.nameless(again, [use("a", CAMERA)]) == set()
    run(cluster, use("a", CAMERA), use("b", CAMERA))
    assert cluster.writes == [("merge", "camera.example.com")]
    assert device_classes.only_by_claims([DONGLE, CAMERA]) == (
        "pods get example.com/camera, example.com/dongle only by ResourceClaims, and not by limits: the DeviceClass "
        "has no extendedResourceName, which needs an API server and kubelets of Kubernetes 1.36 or later, and then a "
        "run of site.yml"
    )


def test_two_plays_at_once_lose_no_node(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    cluster = Cluster("a", "b", "c")
    run(cluster, use("a", CAMERA))

    def other():
        cluster.before_write = lambda: None
        run(cluster, use("b", CAMERA))

    cluster.before_write = other
    run(cluster, use("c", CAMERA))
    assert cluster.users() == {"camera.example.com": '["a", "b", "c"]'}


@pytest.mark.parametrize("refusal", [NotFound("no such kind"), LacksRights("may not list")])
def test_a_cluster_without_dra_matters_only_to_a_node_with_dra(refusal):
    cluster = Cluster("a", refusal=refusal)
    assert run(cluster, use("a")) == {}
    with pytest.raises(type(refusal)):
        run(cluster, use("a", CAMERA))


def test_a_class_for_too_many_nodes_is_refused_before_the_first_write(monkeypatch):
    cluster = Cluster()
    names = [f"node-{number:05}" for number in range(20000)]
    with pytest.raises(DeploymentError) as error:
        device_classes.converge(
            cluster, [use(name, CAMERA, DONGLE) for name in names[:3]] + [use(each, "z.io/z") for each in names]
        )
    assert str(error.value) == (
        "deviceclass z.z.io: its annotation with the names of 20000 nodes would have 280028 bytes, and Kubernetes "
        "accepts 262144: give some of these nodes a resource of another name"
    )
    assert (cluster.writes, cluster.classes) == ([], {})
