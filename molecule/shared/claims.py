"""What the scenarios of claims share: their declaration, their objects, and steps of expect.py."""

from __future__ import annotations

import json
import os
import pathlib
import time
import urllib.error
from typing import Any

from cluster_api import PODS, Cluster, extended, until

SCENARIO = os.environ["MOLECULE_SCENARIO_NAME"].replace("_", "-")
NODE, PLUGIN_NODE, DRIVER = f"{SCENARIO}-worker", f"{SCENARIO}-control-plane", "nodedevices.kubernetes"
API = "/apis/resource.k8s.io/v1"
SLICES, CLASSES = f"{API}/resourceslices", f"{API}/deviceclasses"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CLAIMS, TEMPLATES = f"{API}/namespaces/default/resourceclaims", f"{API}/namespaces/default/resourceclaimtemplates"
RBAC, ADMISSION = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
CAMERA, DONGLE, SEAT, PLAIN = (f"example.com/{name}" for name in ("camera", "dongle", "seat", "plain"))
SEATS = [f"s{number}" for number in range(10)]
#: Each resource with its devices and their attributes.
DECLARED: dict[str, dict[str, dict[str, str]]] = {
    CAMERA: {"front": {"side": "front"}, "rear": {"side": "rear"}},
    DONGLE: {"one": {}},
    SEAT: {name: {} for name in SEATS},
}
FRONT, REAR = ("device.attributes[%r].side == %r" % (DRIVER, side) for side in ("front", "rear"))
EVENTS = f"{PODS.removesuffix('/pods')}/events?fieldSelector=reason%3DFailedPrepareDynamicResources"
IMAGE = {"image": "localhost/node-devices/busybox:lab", "imagePullPolicy": "Never"}
#: Where a step keeps what a later step compares.
KEPT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "kept.json")


def slices_exact_content_and_owner(cluster: Cluster) -> None:
    """Wait until the slices have exactly the declared devices. The node object owns them."""
    found = until(lambda: published(cluster), lambda found: found == DECLARED)
    uid = cluster.ask("GET", f"/api/v1/nodes/{NODE}")["metadata"]["uid"]
    pools: dict[str, list[dict[str, Any]]] = {}
    for each in node_slices(cluster):
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
    create_template(cluster, "a-camera", {"camera": (CAMERA, FRONT)})
    create_pod(cluster, "templated", template="a-camera", script="ls /dev | grep -e camera -e dongle; exec sleep 3600")
    until_printed(cluster, "templated", "camera-front\n")


def both_apis_together(cluster: Cluster) -> None:
    """Create a pod with a claim, and with a device of the device plugin. Variables with an index come with a claim."""
    create_claim(cluster, "dongle", {"dongle": (DONGLE, "")})
    script = "ls /dev | grep -e dongle -e plain; env | grep ^DEV_; exec sleep 3600"
    create_pod(cluster, "both", claim="dongle", script=script, limits={PLAIN: "1"})
    until_printed(cluster, "both", "dongle\nplain\nDEV_DONGLE_0=one\n")
    delete_pod(cluster, "both", "dongle")


def slices_deleted_come_back(cluster: Cluster) -> None:
    """Delete the node's slices as a person does. The plugin creates them again."""
    deleted = {each["metadata"]["uid"] for each in node_slices(cluster)}
    for each in node_slices(cluster):
        cluster.ask("DELETE", f"{SLICES}/{each['metadata']['name']}")
    begin = time.monotonic()
    until(lambda: published(cluster), lambda found: found == DECLARED)
    assert deleted.isdisjoint(each["metadata"]["uid"] for each in node_slices(cluster))
    print(f"slices are back {time.monotonic() - begin:.1f} s after their deletion")


def keeps_its_device(cluster: Cluster) -> None:
    """Check that the pod with the prepared claim runs and still has its device."""
    pod = until(
        lambda: cluster.ask("GET", f"{PODS}/templated"),
        lambda pod: pod["status"]["phase"] == "Running" and pod["status"]["containerStatuses"][0]["ready"],
    )
    (name,) = (each["resourceClaimName"] for each in pod["status"]["resourceClaimStatuses"])
    claim = cluster.ask("GET", f"{CLAIMS}/{name}")
    assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]], claim
    until_printed(cluster, "templated", "camera-front\n")


def remember_slices(cluster: Cluster) -> None:
    """Keep the slices for a comparison."""
    KEPT.write_text(json.dumps(identities(cluster)))


def slices_unchanged_by_restart(cluster: Cluster) -> None:
    """Check that a restart of the plugin changed no slice."""
    time.sleep(2)
    assert identities(cluster) == json.loads(KEPT.read_text())


def service_reconnects(cluster: Cluster) -> None:
    """Delete a pod whose claim a former process prepared. The new process unprepares the claim, so the pod ends."""
    delete_pod(cluster, "templated")
    cluster.ask("DELETE", f"{TEMPLATES}/a-camera")
    names = [each["metadata"]["name"] for each in cluster.ask("GET", CLAIMS)["items"]]
    assert not [name for name in names if name.startswith("templated")], names


def no_claims(cluster: Cluster) -> None:
    """Delete all pods and claims, and wait until nothing is allocated."""
    for each in cluster.ask("GET", DEPLOYMENTS)["items"]:
        cluster.ask("DELETE", f"{DEPLOYMENTS}/{each['metadata']['name']}")
    cluster.delete(*(each["metadata"]["name"] for each in cluster.ask("GET", PODS)["items"]))
    for kind in (TEMPLATES, CLAIMS):
        for each in cluster.ask("GET", kind)["items"]:
            delete_object(cluster, f"{kind}/{each['metadata']['name']}")
    until(lambda: cluster.ask("GET", CLAIMS)["items"], lambda claims: claims == [])


def nothing_left(cluster: Cluster) -> None:
    """Check that the cluster has no object of ours."""
    until(lambda: node_slices(cluster), lambda slices: slices == [])
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


def node_slices(cluster: Cluster) -> list[dict[str, Any]]:
    slices = cluster.ask("GET", f"{SLICES}?fieldSelector=spec.nodeName%3D{NODE}%2Cspec.driver%3D{DRIVER}")["items"]
    return sorted(slices, key=lambda each: str(each["metadata"]["name"]))


def published(cluster: Cluster) -> dict[str, dict[str, dict[str, str]]]:
    """Return each resource with its published devices and their declared attributes."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for each in node_slices(cluster):
        for device in each["spec"].get("devices") or ():
            values = {name: next(iter(value.values())) for name, value in device["attributes"].items()}
            resource, device_id = values.pop("resource"), values.pop("id")
            found.setdefault(resource, {})[device_id] = {key: values[key] for key in ("side",) if key in values}
    return found


def identities(cluster: Cluster) -> list[list[str]]:
    return [[each["metadata"]["uid"], each["metadata"]["resourceVersion"]] for each in node_slices(cluster)]


def class_of(resource: str) -> str:
    """Return the name of a resource's DeviceClass."""
    return ".".join(reversed(resource.split("/")))


def allow_admin_access(cluster: Cluster) -> None:
    """Let claims of the namespace have adminAccess."""
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    cluster.ask("PATCH", "/api/v1/namespaces/default", label, "application/merge-patch+json")


def minor(cluster: Cluster) -> int:
    """Return the minor version of the API server."""
    return int(cluster.ask("GET", "/version")["minor"].rstrip("+"))


def claim_spec(requests: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Return a claim's spec. requests: by name, the resource and a CEL expression, which may be empty."""
    found = []
    for name, (resource, expression) in requests.items():
        exactly: dict[str, Any] = {"deviceClassName": class_of(resource)}
        if expression:
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        found.append({"name": name, "exactly": exactly})
    return {"devices": {"requests": found}}


def create_claim(cluster: Cluster, name: str, requests: dict[str, tuple[str, str]]) -> None:
    cluster.ask("POST", CLAIMS, {"metadata": {"name": name}, "spec": claim_spec(requests)})


def create_template(cluster: Cluster, name: str, requests: dict[str, tuple[str, str]]) -> None:
    cluster.ask("POST", TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": claim_spec(requests)}})


def create_pod(
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
        **IMAGE,
        "command": ["sh", "-c", script],
        "resources": {"limits": limits or {}, **({"claims": [{"name": "devices"}]} if uses else {})},
    }
    spec: dict[str, Any] = {
        "containers": [container] if containers is None else [using(each) for each in containers],
        "initContainers": [using(each) for each in init_containers or ()],
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


def using(container: dict[str, Any]) -> dict[str, Any]:
    claims = [{"name": "devices", **each} for each in container.pop("claims")]
    return {**container, **IMAGE, "resources": {"claims": claims}}


def refusal(cluster: Cluster, pod: str, why: str = "") -> str:
    """Wait until the kubelet could not prepare a pod's claims; returns its message. why: a part of the message."""

    def look() -> list[str]:
        events = cluster.ask("GET", EVENTS)["items"]
        said = [str(each["message"]) for each in events if each["involvedObject"]["name"] == pod]
        return [message for message in said if why in message]

    return str(until(look, bool)[0])


def until_running(cluster: Cluster, *names: str, after: float = 5) -> None:
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


def until_printed(cluster: Cluster, name: str, text: str, container: str = "") -> None:
    """Wait until a pod runs and has printed this text. container: which of its containers, if it has several."""
    until_running(cluster, name)
    which = f"?container={container}" if container else ""
    until(lambda: cluster.ask("GET", f"{PODS}/{name}/log{which}"), lambda seen: seen == text)
    print(f"{name}: {' '.join(text.split())}")


def container_id(cluster: Cluster, name: str) -> str:
    """Return the id of a pod's running container; empty if it does not run."""
    statuses = cluster.ask("GET", f"{PODS}/{name}")["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("containerID", "")) if "running" in statuses[0].get("state", {}) else ""


def delete_pod(cluster: Cluster, pod: str, *claims: str) -> None:
    """Delete pods and claims, and wait until they are gone. A pod ends only after its claims are unprepared."""
    cluster.delete(pod)
    for name in claims:
        delete_object(cluster, f"{CLAIMS}/{name}")


def delete_object(cluster: Cluster, path: str) -> None:
    """Delete an object, which may be gone already."""
    try:
        cluster.ask("DELETE", path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise


#: The steps that both scenarios have.
STEPS = (
    slices_exact_content_and_owner,
    claim_template,
    both_apis_together,
    slices_deleted_come_back,
    keeps_its_device,
    remember_slices,
    slices_unchanged_by_restart,
    service_reconnects,
    no_claims,
    nothing_left,
)
