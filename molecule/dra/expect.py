"""Checks, through the API, devices that pods get by ResourceClaims: expect.py KUBECONFIG STEP...

The steps have the names of the tests in Kubernetes' test/e2e_node/dra_test.go and test/e2e/dra that check the same.
"""

from __future__ import annotations

import json
import os
import pathlib
import time
import urllib.error
from typing import Any

from cluster_api import PODS, Cluster, expect, extended, until

NODE, PLUGIN_NODE, DRIVER = "dra-worker", "dra-control-plane", "nodedevices.kubernetes"
API = "/apis/resource.k8s.io/v1"
SLICES, CLASSES = f"{API}/resourceslices", f"{API}/deviceclasses"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CLAIMS, TEMPLATES = f"{API}/namespaces/default/resourceclaims", f"{API}/namespaces/default/resourceclaimtemplates"
RBAC, ADMISSION = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
CAMERA, DONGLE, SEAT, PLAIN, LAMP = (f"example.com/{name}" for name in ("camera", "dongle", "seat", "plain", "lamp"))
SEATS = [f"s{number}" for number in range(10)]
#: Each resource with its devices and their attributes.
DECLARED: dict[str, dict[str, dict[str, str]]] = {
    CAMERA: {"front": {"side": "front"}, "rear": {"side": "rear"}},
    DONGLE: {"one": {}},
    SEAT: {name: {} for name in SEATS},
}
FRONT, REAR = ("device.attributes[%r].side == %r" % (DRIVER, side) for side in ("front", "rear"))
#: The DeviceClass of each resource.
CLASS = {CAMERA: "camera.example.com", DONGLE: "dongle.example.com", SEAT: "seat.example.com"}
DAEMON_SET = "/apis/apps/v1/namespaces/node-devices/daemonsets/node-device-plugin"
CONFIGURATIONS = "/api/v1/namespaces/node-devices/configmaps/node-device-plugin"
EVENTS = f"{PODS.removesuffix('/pods')}/events?fieldSelector=reason%3DFailedPrepareDynamicResources"
#: Where a step keeps what a later step compares.
KEPT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "kept.json")


def slices_exact_content_and_owner(cluster: Cluster) -> None:
    """Wait until the slices have exactly the declared devices. The node object owns them."""
    found = until(lambda: _devices(cluster), lambda found: found == DECLARED)
    uid = cluster.ask("GET", f"/api/v1/nodes/{NODE}")["metadata"]["uid"]
    pools: dict[str, list[dict[str, Any]]] = {}
    for each in _slices(cluster):
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Node", NODE, uid, True), owner
        assert each["spec"]["nodeName"] == NODE, each
        pools.setdefault(each["spec"]["pool"]["name"], []).append(each["spec"]["pool"])
    assert len(pools) == len(DECLARED), pools
    for name, slices in pools.items():
        assert all(each["resourceSliceCount"] == len(slices) for each in slices), (name, slices)
    # A resource has one API on a node.
    assert set(extended(cluster, NODE, "capacity")) == {PLAIN}
    print(f"slices: {found}, pools {sorted(pools)}")


def claim_template(cluster: Cluster) -> None:
    """Create a pod whose claim comes from a template. Its container has one camera, and no other node of ours."""
    _template(cluster, "a-camera", {"camera": (CAMERA, FRONT)})
    _pod(cluster, "templated", template="a-camera", script="ls /dev | grep -e camera -e dongle; exec sleep 3600")
    _logs(cluster, "templated", "camera-front\n")


def claim_by_attribute(cluster: Cluster) -> None:
    """Create a claim that selects one of two devices by its attribute."""
    _claim(cluster, "rear", {"camera": (CAMERA, REAR)})
    _pod(cluster, "chooses", claim="rear", script="ls /dev | grep camera; exec sleep 3600")
    _logs(cluster, "chooses", "camera-rear\n")
    (result,) = cluster.ask("GET", f"{CLAIMS}/rear")["status"]["allocation"]["devices"]["results"]
    print(f"claim rear: {result['pool']} {result['device']}")


def both_apis_together(cluster: Cluster) -> None:
    """Create a pod with a claim, and with a device of the device plugin. Variables with an index come with a claim."""
    _claim(cluster, "dongle", {"dongle": (DONGLE, "")})
    script = "ls /dev | grep -e dongle -e plain; env | grep ^DEV_; exec sleep 3600"
    _pod(cluster, "both", claim="dongle", script=script, limits={PLAIN: "1"})
    _logs(cluster, "both", "dongle\nplain\nDEV_DONGLE_0=one\n")
    _delete(cluster, "both", "dongle")


def unused_claim_still_prepared(cluster: Cluster) -> None:
    """Create a pod whose container uses none of its claims. The pod runs, and its container has no device."""
    _claim(cluster, "unused", {"dongle": (DONGLE, "")})
    _pod(cluster, "unused", claim="unused", script="ls /dev | grep -c dongle; exec sleep 3600", uses=False)
    _logs(cluster, "unused", "0\n")
    _delete(cluster, "unused", "unused")


def slices_deleted_come_back(cluster: Cluster) -> None:
    """Delete the node's slices as a person does. The plugin creates them again."""
    deleted = {each["metadata"]["uid"] for each in _slices(cluster)}
    for each in _slices(cluster):
        cluster.ask("DELETE", f"{SLICES}/{each['metadata']['name']}")
    begin = time.monotonic()
    until(lambda: _devices(cluster), lambda found: found == DECLARED)
    assert deleted.isdisjoint(each["metadata"]["uid"] for each in _slices(cluster))
    print(f"slices are back {time.monotonic() - begin:.1f} s after their deletion")


def force_deleted(cluster: Cluster) -> None:
    """Delete a pod by force while its container goes on, and give its device to the next pod.

    Both containers note when they have the device.
    """
    _delete(cluster, "chooses", "rear")
    note = "while :; do read now rest < /proc/uptime; echo %s $now >> /uses; sleep 0.1; done"
    for name in ("stubborn", "follower"):
        _claim(cluster, name, {"camera": (CAMERA, REAR)})
    _pod(cluster, "stubborn", claim="stubborn", script=note % "stubborn", notes=True)
    _run(cluster, "stubborn")
    time.sleep(2)
    cluster.ask("DELETE", f"{PODS}/stubborn?gracePeriodSeconds=0")
    begin = time.monotonic()
    _pod(cluster, "follower", claim="follower", script=note % "follower", notes=True)
    until(lambda: cluster.ask("GET", f"{PODS}/follower")["spec"].get("nodeName"), bool)
    print(f"the device is allocated again after {time.monotonic() - begin:.1f} s")
    said = _refusal(cluster, "follower")
    assert "is still prepared for claim default/stubborn, which the kubelet has not released yet" in said, said
    _run(cluster, "follower", after=0)
    print(f"the next pod runs after {time.monotonic() - begin:.1f} s: {said}")
    _delete(cluster, "follower", "stubborn", "follower")


def devices_to_the_right_containers(cluster: Cluster) -> None:
    """Create a pod whose containers use different requests of a claim, and whose init container uses all of them.

    The second request has alternatives, of which no device fits the first.
    """
    none = {"name": "none", "deviceClassName": CLASS[CAMERA], "selectors": [{"cel": {"expression": "false"}}]}
    either = {"name": "either", "firstAvailable": [none, {"name": "dongle", "deviceClassName": CLASS[DONGLE]}]}
    spec = _spec({"camera": (CAMERA, REAR)})
    spec["devices"]["requests"].append(either)
    cluster.ask("POST", CLAIMS, {"metadata": {"name": "parts"}, "spec": spec})
    look = "ls /dev | grep -e camera -e dongle"
    users = [
        {"name": name, "command": ["sh", "-c", f"{look}; exec sleep 3600"], "claims": [{"request": request}]}
        for name, request in (("camera", "camera"), ("dongle", "either"))
    ]
    first = {"name": "first", "command": ["sh", "-c", look], "claims": [{}]}
    _pod(cluster, "parts", claim="parts", containers=users, init_containers=[first])
    _logs(cluster, "parts", "camera-rear\ndongle\n", container="first")
    _logs(cluster, "parts", "camera-rear\n", container="camera")
    _logs(cluster, "parts", "dongle\n", container="dongle")
    _delete(cluster, "parts", "parts")


def sharing_a_claim(cluster: Cluster) -> None:
    """Create two pods with one claim. The device stays with the second pod after the first has gone."""
    _claim(cluster, "shared", {"camera": (CAMERA, REAR)})
    for name in ("one", "two"):
        _pod(cluster, name, claim="shared", script="ls /dev | grep camera; exec sleep 3600")
        _logs(cluster, name, "camera-rear\n")
    cluster.delete("one")
    _pod(cluster, "three", claim="shared", script="ls /dev | grep camera; exec sleep 3600")
    _logs(cluster, "three", "camera-rear\n")
    assert cluster.ask("GET", f"{PODS}/two")["status"]["phase"] == "Running"
    cluster.delete("two", "three")
    _gone(cluster, f"{CLAIMS}/shared")


def admin_access(cluster: Cluster) -> None:
    """Create a pod with adminAccess. It gets the device that another pod has."""
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    cluster.ask("PATCH", "/api/v1/namespaces/default", label, "application/merge-patch+json")
    spec = _spec({"camera": (CAMERA, FRONT)})
    spec["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    cluster.ask("POST", CLAIMS, {"metadata": {"name": "admin"}, "spec": spec})
    _pod(cluster, "admin", claim="admin", script="ls /dev | grep camera; exec sleep 3600")
    _logs(cluster, "admin", "camera-front\n")
    keeps_its_device(cluster)
    _delete(cluster, "admin", "admin")


def ten_pods_at_once(cluster: Cluster) -> None:
    """Create ten pods whose claims come from a template. Each has another device."""
    _template(cluster, "a-seat", {"seat": (SEAT, "")})
    names = [f"pod-{number}" for number in range(len(SEATS))]
    begin = time.monotonic()
    for name in names:
        _pod(cluster, name, template="a-seat", script="env | grep ^DEV_; exec sleep 3600")
    _run(cluster, *names)
    took = time.monotonic() - begin
    seen = until(
        lambda: sorted(cluster.ask("GET", f"{PODS}/{name}/log") for name in names),
        lambda seen: all(seen),
    )
    assert seen == [f"DEV_SEAT_0={seat}\n" for seat in SEATS], seen
    print(f"ten pods run after {took:.1f} s")
    cluster.delete(*names)
    until(lambda: cluster.ask("GET", CLAIMS)["items"], lambda claims: all("seat" not in str(each) for each in claims))
    _gone(cluster, f"{TEMPLATES}/a-seat")


def device_plugin_and_dra_nodes_together(cluster: Cluster) -> None:
    """Create a Deployment whose pods have a camera in their limits. Each has its own, on whichever kind of node.

    Before Kubernetes 1.36, only the node of the device plugin has devices for such pods.
    """
    wanted = {"camera-side\n": PLUGIN_NODE}
    named = cluster.ask("GET", f"{CLASSES}/{CLASS[CAMERA]}")["spec"].get("extendedResourceName")
    if int(cluster.ask("GET", "/version")["minor"].rstrip("+")) >= 36:
        wanted.update({"camera-front\n": NODE, "camera-rear\n": NODE})
        assert named == CAMERA, named
    else:
        assert named is None, named
    labels = {"app": "limits"}
    template = {"metadata": {"labels": labels}, "spec": _limited("ls /dev | grep camera; exec sleep 3600")}
    spec = {"replicas": len(wanted), "selector": {"matchLabels": labels}, "template": template}
    cluster.ask("POST", DEPLOYMENTS, {"metadata": {"name": "limits"}, "spec": spec})
    pods = f"{PODS}?labelSelector=app%3Dlimits"
    items = until(lambda: cluster.ask("GET", pods)["items"], lambda items: len(items) == len(wanted))
    _run(cluster, *(each["metadata"]["name"] for each in items))

    def seen() -> dict[str, str]:
        items = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in cluster.ask("GET", pods)["items"]}
        return {cluster.ask("GET", f"{PODS}/{name}/log"): node for name, node in items.items()}

    print(f"each pod's device and node: {until(seen, lambda found: found == wanted)}")


def pod_without_a_scheduler(cluster: Cluster) -> None:
    """Create a pod for the DRA node with spec.nodeName. The kubelet starts it without the device in its limits."""
    spec = {**_limited("ls /dev | grep camera || echo none; exec sleep 3600"), "nodeName": NODE}
    cluster.ask("POST", PODS, {"metadata": {"name": "by-name"}, "spec": spec})
    _logs(cluster, "by-name", "none\n")


def registers_after_kubelet_restart(cluster: Cluster) -> None:
    """Wait until other slices replace those that the kubelet deletes at its start, and a new claim is prepared."""
    before = {uid for uid, _version in json.loads(KEPT.read_text())}
    until(lambda: {uid for uid, _version in _identities(cluster)}, lambda uids: uids and before.isdisjoint(uids))
    slices_exact_content_and_owner(cluster)
    _claim(cluster, "dongle", {"dongle": (DONGLE, "")})
    _pod(cluster, "new", claim="dongle", script="env | grep ^DEV_; exec sleep 3600")
    _logs(cluster, "new", "DEV_DONGLE_0=one\n")
    _delete(cluster, "new", "dongle")


def keeps_its_device(cluster: Cluster) -> None:
    """Check that the pod with the prepared claim runs and still has its device."""
    pod = until(
        lambda: cluster.ask("GET", f"{PODS}/templated"),
        lambda pod: pod["status"]["phase"] == "Running" and pod["status"]["containerStatuses"][0]["ready"],
    )
    (name,) = (each["resourceClaimName"] for each in pod["status"]["resourceClaimStatuses"])
    claim = cluster.ask("GET", f"{CLAIMS}/{name}")
    assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]], claim
    _logs(cluster, "templated", "camera-front\n")


def remember_slices(cluster: Cluster) -> None:
    """Keep the slices for a comparison."""
    KEPT.write_text(json.dumps(_identities(cluster)))


def slices_unchanged_by_restart(cluster: Cluster) -> None:
    """Check that a restart of the plugin changed no slice."""
    time.sleep(2)
    assert _identities(cluster) == json.loads(KEPT.read_text())


def service_reconnects(cluster: Cluster) -> None:
    """Delete a pod whose claim a former process prepared. The new process unprepares the claim, so the pod ends."""
    _delete(cluster, "templated")
    cluster.ask("DELETE", f"{TEMPLATES}/a-camera")
    names = [each["metadata"]["name"] for each in cluster.ask("GET", CLAIMS)["items"]]
    assert not [name for name in names if name.startswith("templated")], names


def pod_to_be_deleted(cluster: Cluster) -> None:
    """Create a pod with a claim."""
    _claim(cluster, "deleted", {"dongle": (DONGLE, "")})
    _pod(cluster, "deleted", claim="deleted", script="env | grep ^DEV_; exec sleep 3600")
    _logs(cluster, "deleted", "DEV_DONGLE_0=one\n")


def deleted_while_kubelet_down(cluster: Cluster) -> None:
    """Delete that pod, and another pod right after the scheduler has chosen its device."""
    _claim(cluster, "never", {"seat": (SEAT, "")})
    _pod(cluster, "never", claim="never", script="exec sleep 3600")
    until(lambda: cluster.ask("GET", f"{PODS}/never")["spec"].get("nodeName"), lambda node: node == NODE)
    for name in ("deleted", "never"):
        cluster.ask("DELETE", f"{PODS}/{name}")


def deleted_pods_end_after_restart(cluster: Cluster) -> None:
    """Wait until the kubelet has ended both. A pod ends only after its claim is unprepared."""
    until(
        lambda: {pod["metadata"]["name"] for pod in cluster.ask("GET", PODS)["items"]},
        lambda there: not there & {"deleted", "never"},
    )
    for name in ("deleted", "never"):
        _gone(cluster, f"{CLAIMS}/{name}")


def pod_made_while_kubelet_down(cluster: Cluster) -> None:
    """Create a pod while the kubelet is down. The scheduler binds it while the node still counts as Ready."""
    _template(cluster, "a-camera", {"camera": (CAMERA, FRONT)})
    _pod(cluster, "templated", template="a-camera", script="ls /dev | grep -e camera -e dongle; exec sleep 3600")
    until(lambda: cluster.ask("GET", f"{PODS}/templated")["spec"].get("nodeName"), lambda node: node == NODE)


def pod_made_while_kubelet_down_starts(cluster: Cluster) -> None:
    """Wait until that pod runs with its device."""
    _logs(cluster, "templated", "camera-front\n")


def rolling_update(cluster: Cluster) -> None:
    """Replace the DaemonSet's pod, which also serves a device plugin: from kubelet 1.37 on, both pods serve."""
    version = cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]["nodeInfo"]["kubeletVersion"]
    _replace_pod(cluster, int(int(version.split(".")[1]) >= 37))


def overlapping_update(cluster: Cluster) -> None:
    """Replace the pod of a DaemonSet that serves DRA alone: both pods serve on each kubelet."""
    until(lambda: _devices(cluster), lambda found: found == {**DECLARED, LAMP: {"l0": {}}})
    remember_slices(cluster)
    _replace_pod(cluster, 1)


def _replace_pod(cluster: Cluster, surge: int) -> None:
    """Replace the DaemonSet's pod. surge: how many pods may serve beside the former one."""
    found = cluster.ask("GET", DAEMON_SET)
    assert found["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == surge, found["spec"]["updateStrategy"]
    before = _plugins(cluster)
    seen: set[str] = set()
    template = {"metadata": {"annotations": {"example.com/look": str(time.monotonic())}}}
    cluster.ask("PATCH", DAEMON_SET, {"spec": {"template": template}}, "application/merge-patch+json")

    def look() -> list[str]:
        pods = _plugins(cluster)
        seen.update(pods if len(pods) == 2 else ())
        return pods

    (after,) = until(look, lambda pods: len(pods) == 1 and pods != before)
    assert not surge or seen == {*before, after}, f"{seen} overlapped"
    until(lambda: cluster.ask("GET", DAEMON_SET)["status"].get("numberReady"), lambda ready: ready == 1)
    print(f"pod {after} has replaced {before}")


def in_a_pool(cluster: Cluster) -> None:
    """Remove what names the node, and give it the label by which a profile selects nodes."""
    merge = "application/merge-patch+json"
    cluster.ask("PATCH", CONFIGURATIONS, {"data": {NODE: None}}, merge)
    labels = {"lab.example.com/pool": "dra", "nodedevices.kubernetes/device-plugin": None}
    cluster.ask("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": labels}}, merge)


def of_a_profile(cluster: Cluster) -> None:
    """Check that no configuration names the node, and that each class belongs to the profile and to the former host."""
    configurations = cluster.ask("GET", CONFIGURATIONS)["data"]
    assert set(configurations) == {"_default"}, configurations
    for name in CLASS.values():
        users = cluster.ask("GET", f"{CLASSES}/{name}")["metadata"]["annotations"]["nodedevices.kubernetes/nodes"]
        assert json.loads(users) == [NODE, "node-devices/node-device-plugin"], users


def allocated_before_unplugged(cluster: Cluster) -> None:
    """Create another pod while the kubelet is down. Its device is unplugged before the kubelet is up."""
    _claim(cluster, "unplugged", {"camera": (CAMERA, REAR)})
    _pod(cluster, "unplugged", claim="unplugged", script="ls /dev | grep camera; exec sleep 3600")
    until(lambda: cluster.ask("GET", f"{PODS}/unplugged")["spec"].get("nodeName"), lambda node: node == NODE)


def unplugged_is_refused(cluster: Cluster) -> None:
    """Wait until that pod's event names claim, request, device and reason."""
    said = _refusal(cluster, "unplugged")
    assert "claim default/unplugged, request camera, device rear " in said, said
    assert "(example.com/camera=rear): /dev/full: No such file or directory" in said, said
    assert cluster.ask("GET", f"{PODS}/unplugged")["status"]["phase"] == "Pending"
    print(said)


def plugged_in_again(cluster: Cluster) -> None:
    """Wait until that pod runs with its device, which is plugged in again."""
    _run(cluster, "unplugged", after=0)
    _logs(cluster, "unplugged", "camera-rear\n")
    _delete(cluster, "unplugged", "unplugged")


def slices_away_without_credentials(cluster: Cluster) -> None:
    """Delete the node's slices. Without a certificate, the plugin cannot create them again."""
    for each in _slices(cluster):
        cluster.ask("DELETE", f"{SLICES}/{each['metadata']['name']}")
    time.sleep(2)
    assert _slices(cluster) == []


def pods_before_a_reboot(cluster: Cluster) -> None:
    """Create a pod whose claim needs a CDI spec of its own, beside the pod whose claim needs none."""
    _claim(cluster, "dongle", {"dongle": (DONGLE, "")})
    _pod(cluster, "specific", claim="dongle", script="env | grep ^DEV_; exec sleep 3600")
    _logs(cluster, "specific", "DEV_DONGLE_0=one\n")
    containers = {name: _container(cluster, name) for name in ("specific", "templated")}
    KEPT.write_text(json.dumps(containers))


def keeps_its_devices_over_a_reboot(cluster: Cluster) -> None:
    """Wait until other containers of the same pods run, with the same devices."""
    for name, before in json.loads(KEPT.read_text()).items():
        until(lambda: _container(cluster, name), lambda now: now not in ("", before))  # noqa: B023
    _logs(cluster, "specific", "DEV_DONGLE_0=one\n")
    keeps_its_device(cluster)
    _delete(cluster, "specific", "dongle")


def pod_that_ends(cluster: Cluster) -> None:
    """Create a pod with a claim that ends after some seconds."""
    _claim(cluster, "ends", {"dongle": (DONGLE, "")})
    _pod(cluster, "ends", claim="ends", script="env | grep ^DEV_; exec sleep 15", restarts=False)
    _logs(cluster, "ends", "DEV_DONGLE_0=one\n")


def has_ended(cluster: Cluster) -> None:
    """Check that this pod ended by itself, and that its claim is free."""
    assert cluster.ask("GET", f"{PODS}/ends")["status"]["phase"] == "Succeeded"
    until(lambda: cluster.ask("GET", f"{CLAIMS}/ends").get("status") or {}, lambda status: "allocation" not in status)


def no_claims(cluster: Cluster) -> None:
    """Delete all pods and claims, and wait until nothing is allocated."""
    for each in cluster.ask("GET", DEPLOYMENTS)["items"]:
        cluster.ask("DELETE", f"{DEPLOYMENTS}/{each['metadata']['name']}")
    cluster.delete(*(each["metadata"]["name"] for each in cluster.ask("GET", PODS)["items"]))
    for kind in (TEMPLATES, CLAIMS):
        for each in cluster.ask("GET", kind)["items"]:
            _gone(cluster, f"{kind}/{each['metadata']['name']}")
    until(lambda: cluster.ask("GET", CLAIMS)["items"], lambda claims: claims == [])


def nothing_left(cluster: Cluster) -> None:
    """Check that the cluster has no object of ours."""
    until(lambda: _slices(cluster), lambda slices: slices == [])
    for path in (
        CLASSES,
        *(f"{RBAC}/{kind}" for kind in ("clusterroles", "clusterrolebindings")),
        *(f"{ADMISSION}/validatingadmission{kind}" for kind in ("policies", "policybindings")),
    ):
        ours = [
            each["metadata"]["name"]
            for each in cluster.ask("GET", path)["items"]
            if "nodedevices" in json.dumps(each["metadata"].get("labels", {})) or "node-device" in json.dumps(each)
        ]
        assert ours == [], f"{path}: {ours}"


def _plugins(cluster: Cluster) -> list[str]:
    pods = cluster.ask("GET", "/api/v1/namespaces/node-devices/pods")["items"]
    return [each["metadata"]["name"] for each in pods]


def _slices(cluster: Cluster) -> list[dict[str, Any]]:
    slices = cluster.ask("GET", f"{SLICES}?fieldSelector=spec.nodeName%3D{NODE}%2Cspec.driver%3D{DRIVER}")["items"]
    return sorted(slices, key=lambda each: str(each["metadata"]["name"]))


def _devices(cluster: Cluster) -> dict[str, dict[str, dict[str, str]]]:
    """Return each resource with its published devices and their declared attributes."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for each in _slices(cluster):
        for device in each["spec"].get("devices", ()):
            values = {name: next(iter(value.values())) for name, value in device["attributes"].items()}
            resource, device_id = values.pop("resource"), values.pop("id")
            found.setdefault(resource, {})[device_id] = {key: values[key] for key in ("side",) if key in values}
    return found


def _identities(cluster: Cluster) -> list[list[str]]:
    return [[each["metadata"]["uid"], each["metadata"]["resourceVersion"]] for each in _slices(cluster)]


def _spec(requests: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Return a claim's spec. requests: by name, the resource and a CEL expression, which may be empty."""
    found = []
    for name, (resource, expression) in requests.items():
        exactly: dict[str, Any] = {"deviceClassName": CLASS[resource]}
        if expression:
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        found.append({"name": name, "exactly": exactly})
    return {"devices": {"requests": found}}


def _claim(cluster: Cluster, name: str, requests: dict[str, tuple[str, str]]) -> None:
    cluster.ask("POST", CLAIMS, {"metadata": {"name": name}, "spec": _spec(requests)})


def _template(cluster: Cluster, name: str, requests: dict[str, tuple[str, str]]) -> None:
    cluster.ask("POST", TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": _spec(requests)}})


def _pod(
    cluster: Cluster,
    name: str,
    script: str = "",
    *,
    claim: str = "",
    template: str = "",
    limits: dict[str, str] | None = None,
    uses: bool = True,
    notes: bool = False,
    restarts: bool = True,
    containers: list[dict[str, Any]] | None = None,
    init_containers: list[dict[str, Any]] | None = None,
) -> None:
    """Create a pod. uses: whether its container uses the claim. notes: whether it can write the node's /run/lab-uses.

    restarts: whether its container starts again after its end. containers, init_containers: instead of the only one,
    each with the keys name, command, and claims, whose items may have the key request.

    A shell as process 1 ignores SIGTERM, so such a pod ends only after its grace period.
    """
    container: dict[str, Any] = {
        "name": "main",
        "image": "localhost/node-devices/busybox:lab",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": {"limits": limits or {}, **({"claims": [{"name": "devices"}]} if uses else {})},
    }
    spec: dict[str, Any] = {
        "containers": [container] if containers is None else [_using(each) for each in containers],
        "initContainers": [_using(each) for each in init_containers or ()],
        "restartPolicy": "Always" if restarts else "Never",
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 6 if notes else 1,
        "resourceClaims": [
            {"name": "devices", **({"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template})}
        ],
    }
    if notes:
        container["volumeMounts"] = [{"name": "uses", "mountPath": "/uses"}]
        spec["volumes"] = [{"name": "uses", "hostPath": {"path": "/run/lab-uses", "type": "FileOrCreate"}}]
    cluster.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})


def _limited(script: str) -> dict[str, Any]:
    """Return the spec of a pod with a camera in its limits."""
    container = {
        "name": "main",
        "image": "localhost/node-devices/busybox:lab",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": {"limits": {CAMERA: "1"}},
    }
    # The node of the device plugin is the control plane's, which has a taint.
    tolerated = {"tolerations": [{"operator": "Exists"}]}
    quick = {"hostNetwork": True, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    return {"containers": [container], **tolerated, **quick}


def _using(container: dict[str, Any]) -> dict[str, Any]:
    claims = [{"name": "devices", **each} for each in container.pop("claims")]
    image = {"image": "localhost/node-devices/busybox:lab", "imagePullPolicy": "Never"}
    return {**container, **image, "resources": {"claims": claims}}


def _container(cluster: Cluster, name: str) -> str:
    """Return the id of a pod's running container; empty if it does not run."""
    statuses = cluster.ask("GET", f"{PODS}/{name}")["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("containerID", "")) if "running" in statuses[0].get("state", {}) else ""


def _refusal(cluster: Cluster, pod: str) -> str:
    """Wait until the kubelet could not prepare a pod's claims; returns its message."""

    def look() -> list[str]:
        events = cluster.ask("GET", EVENTS)["items"]
        return [str(each["message"]) for each in events if each["involvedObject"]["name"] == pod]

    return str(until(look, bool)[0])


def _run(cluster: Cluster, *names: str, after: float = 5) -> None:
    """Wait until pods run.

    The kubelet tries again after a minute, or when a pod changes. It also fails by itself if the Node authorizer knows
    the pod too late. after: seconds before pods that do not run yet are changed.
    """
    begin = time.monotonic()

    def look() -> list[str]:
        waiting = [name for name in names if cluster.ask("GET", f"{PODS}/{name}")["status"]["phase"] != "Running"]
        if waiting and time.monotonic() - begin >= after:
            for name in waiting:
                change = {"metadata": {"annotations": {"example.com/look": str(time.monotonic())}}}
                cluster.ask("PATCH", f"{PODS}/{name}", change, "application/merge-patch+json")
            time.sleep(1)
        return waiting

    until(look, lambda waiting: waiting == [])


def _logs(cluster: Cluster, name: str, text: str, container: str = "") -> None:
    """Wait until a pod runs and has printed this text. container: which of its containers, if it has several."""
    _run(cluster, name)
    which = f"?container={container}" if container else ""
    until(lambda: cluster.ask("GET", f"{PODS}/{name}/log{which}"), lambda seen: seen == text)
    print(f"{name}: {' '.join(text.split())}")


def _delete(cluster: Cluster, pod: str, *claims: str) -> None:
    """Delete pods and claims, and wait until they are gone. A pod ends only after its claims are unprepared."""
    cluster.delete(pod)
    for name in claims:
        _gone(cluster, f"{CLAIMS}/{name}")


def _gone(cluster: Cluster, path: str) -> None:
    """Delete an object, which may be gone already."""
    try:
        cluster.ask("DELETE", path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise


if __name__ == "__main__":
    expect(
        *(
            slices_exact_content_and_owner,
            claim_template,
            claim_by_attribute,
            both_apis_together,
            unused_claim_still_prepared,
            slices_deleted_come_back,
            rolling_update,
            force_deleted,
            devices_to_the_right_containers,
            sharing_a_claim,
            admin_access,
            ten_pods_at_once,
            device_plugin_and_dra_nodes_together,
            pod_without_a_scheduler,
            no_claims,
        ),
        *(registers_after_kubelet_restart, keeps_its_device, remember_slices, slices_unchanged_by_restart),
        *(service_reconnects, pod_made_while_kubelet_down, pod_made_while_kubelet_down_starts, nothing_left),
        *(
            in_a_pool,
            of_a_profile,
            allocated_before_unplugged,
            unplugged_is_refused,
            plugged_in_again,
            slices_away_without_credentials,
        ),
        *(pod_to_be_deleted, deleted_while_kubelet_down, deleted_pods_end_after_restart),
        overlapping_update,
        *(pods_before_a_reboot, keeps_its_devices_over_a_reboot, pod_that_ends, has_ended),
    )
