"""Checks, through the API, devices that pods get by ResourceClaims: expect.py KUBECONFIG STEP...

The steps have the names of the tests in Kubernetes' test/e2e_node/dra_test.go and test/e2e/dra that check the same.
"""

from __future__ import annotations

import json
import time
from typing import Any

from claims import (
    CAMERA,
    CLAIMS,
    CLASSES,
    DEPLOYMENTS,
    DONGLE,
    FRONT,
    IMAGE,
    KEPT,
    NODE,
    PLUGIN_NODE,
    REAR,
    SEAT,
    SEATS,
    SLICES,
    STEPS,
    TEMPLATES,
    allow_admin_access,
    claim_spec,
    class_of,
    container_id,
    create_claim,
    create_pod,
    create_template,
    delete_object,
    delete_pod,
    identities,
    keeps_its_device,
    minor,
    node_slices,
    refusal,
    slices_exact_content_and_owner,
    until_printed,
    until_running,
)
from cluster_api import PODS, Cluster, expect, until


def claim_by_attribute(cluster: Cluster) -> None:
    """Create a claim that selects one of two devices by its attribute."""
    create_claim(cluster, "rear", {"camera": (CAMERA, REAR)})
    create_pod(cluster, "chooses", claim="rear", script="ls /dev | grep camera; exec sleep 3600")
    until_printed(cluster, "chooses", "camera-rear\n")
    (result,) = cluster.ask("GET", f"{CLAIMS}/rear")["status"]["allocation"]["devices"]["results"]
    print(f"claim rear: {result['pool']} {result['device']}")


def unused_claim_still_prepared(cluster: Cluster) -> None:
    """Create a pod whose container uses none of its claims. The pod runs, and its container has no device."""
    create_claim(cluster, "unused", {"dongle": (DONGLE, "")})
    create_pod(cluster, "unused", claim="unused", script="ls /dev | grep -c dongle; exec sleep 3600", uses=False)
    until_printed(cluster, "unused", "0\n")
    delete_pod(cluster, "unused", "unused")


def force_deleted(cluster: Cluster) -> None:
    """Delete a pod by force while its container goes on, and give its device to the next pod.

    Both containers note when they have the device. A new claim and a new pod under the names of the deleted ones wait,
    too: the kubelet refuses them, because it has not released the old claim.
    """
    delete_pod(cluster, "chooses", "rear")
    note = "while :; do read now rest < /proc/uptime; echo %s $now >> /uses; sleep 0.1; done"
    for name in ("stubborn", "follower"):
        create_claim(cluster, name, {"camera": (CAMERA, REAR)})
    create_pod(cluster, "stubborn", claim="stubborn", script=note % "stubborn", notes=True)
    until_running(cluster, "stubborn")
    time.sleep(2)
    cluster.ask("DELETE", f"{PODS}/stubborn?gracePeriodSeconds=0")
    begin = time.monotonic()
    create_pod(cluster, "follower", claim="follower", script=note % "follower", notes=True)
    until(lambda: cluster.ask("GET", f"{PODS}/follower")["spec"].get("nodeName"), bool)
    print(f"the device is allocated again after {time.monotonic() - begin:.1f} s")
    delete_object(cluster, f"{CLAIMS}/stubborn")
    until(
        lambda: [claim["metadata"]["name"] for claim in cluster.ask("GET", CLAIMS)["items"]],
        lambda there: "stubborn" not in there,
    )
    create_claim(cluster, "stubborn", {"dongle": (DONGLE, "")})
    create_pod(cluster, "stubborn", claim="stubborn", script="ls /dev | grep -e camera -e dongle; exec sleep 3600")
    said = refusal(cluster, "follower")
    assert "is still prepared for claim default/stubborn, which the kubelet has not released yet" in said, said
    until_running(cluster, "follower", after=0)
    print(f"the next pod runs after {time.monotonic() - begin:.1f} s: {said}")
    said = refusal(cluster, "stubborn", "old ResourceClaim with same name stubborn and different UID")
    until_running(cluster, "stubborn", after=0)
    until_printed(cluster, "stubborn", "dongle\n")
    print(f"the new pod of the old name runs after {time.monotonic() - begin:.1f} s: {said}")
    delete_pod(cluster, "follower", "follower")
    delete_pod(cluster, "stubborn", "stubborn")


def devices_to_the_right_containers(cluster: Cluster) -> None:
    """Create a pod whose containers use different requests of a claim, and whose init container uses all of them.

    The second request has alternatives, of which no device fits the first.
    """
    none = {"name": "none", "deviceClassName": class_of(CAMERA), "selectors": [{"cel": {"expression": "false"}}]}
    either = {"name": "either", "firstAvailable": [none, {"name": "dongle", "deviceClassName": class_of(DONGLE)}]}
    spec = claim_spec({"camera": (CAMERA, REAR)})
    spec["devices"]["requests"].append(either)
    cluster.ask("POST", CLAIMS, {"metadata": {"name": "parts"}, "spec": spec})
    look = "ls /dev | grep -e camera -e dongle"
    users = [
        {"name": name, "command": ["sh", "-c", f"{look}; exec sleep 3600"], "claims": [{"request": request}]}
        for name, request in (("camera", "camera"), ("dongle", "either"))
    ]
    first = {"name": "first", "command": ["sh", "-c", look], "claims": [{}]}
    create_pod(cluster, "parts", claim="parts", containers=users, init_containers=[first])
    until_printed(cluster, "parts", "camera-rear\ndongle\n", container="first")
    until_printed(cluster, "parts", "camera-rear\n", container="camera")
    until_printed(cluster, "parts", "dongle\n", container="dongle")
    delete_pod(cluster, "parts", "parts")


def sharing_a_claim(cluster: Cluster) -> None:
    """Create two pods with one claim. The device stays with the second pod after the first has gone."""
    create_claim(cluster, "shared", {"camera": (CAMERA, REAR)})
    for name in ("one", "two"):
        create_pod(cluster, name, claim="shared", script="ls /dev | grep camera; exec sleep 3600")
        until_printed(cluster, name, "camera-rear\n")
    cluster.delete("one")
    create_pod(cluster, "three", claim="shared", script="ls /dev | grep camera; exec sleep 3600")
    until_printed(cluster, "three", "camera-rear\n")
    assert cluster.ask("GET", f"{PODS}/two")["status"]["phase"] == "Running"
    cluster.delete("two", "three")
    delete_object(cluster, f"{CLAIMS}/shared")


def admin_access(cluster: Cluster) -> None:
    """Create a pod with adminAccess. It gets the device that another pod has."""
    allow_admin_access(cluster)
    spec = claim_spec({"camera": (CAMERA, FRONT)})
    spec["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    cluster.ask("POST", CLAIMS, {"metadata": {"name": "admin"}, "spec": spec})
    create_pod(cluster, "admin", claim="admin", script="ls /dev | grep camera; exec sleep 3600")
    until_printed(cluster, "admin", "camera-front\n")
    keeps_its_device(cluster)
    delete_pod(cluster, "admin", "admin")


def ten_pods_at_once(cluster: Cluster) -> None:
    """Create ten pods whose claims come from a template. Each has another device."""
    create_template(cluster, "a-seat", {"seat": (SEAT, "")})
    names = [f"pod-{number}" for number in range(len(SEATS))]
    begin = time.monotonic()
    for name in names:
        create_pod(cluster, name, template="a-seat", script="env | grep ^DEV_; exec sleep 3600")
    until_running(cluster, *names)
    took = time.monotonic() - begin
    seen = until(
        lambda: sorted(cluster.ask("GET", f"{PODS}/{name}/log") for name in names),
        lambda seen: all(seen),
    )
    assert seen == [f"DEV_SEAT_0={seat}\n" for seat in SEATS], seen
    print(f"ten pods run after {took:.1f} s")
    cluster.delete(*names)
    until(lambda: cluster.ask("GET", CLAIMS)["items"], lambda claims: all("seat" not in str(each) for each in claims))
    delete_object(cluster, f"{TEMPLATES}/a-seat")


def device_plugin_and_dra_nodes_together(cluster: Cluster) -> None:
    """Create a Deployment whose pods have a camera in their limits. Each has its own, on whichever kind of node.

    Before Kubernetes 1.36, only the node of the device plugin has devices for such pods.
    """
    wanted = {"camera-side\n": PLUGIN_NODE}
    named = cluster.ask("GET", f"{CLASSES}/{class_of(CAMERA)}")["spec"].get("extendedResourceName")
    if minor(cluster) >= 36:
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
    until_running(cluster, *(each["metadata"]["name"] for each in items))

    def seen() -> dict[str, str]:
        items = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in cluster.ask("GET", pods)["items"]}
        return {cluster.ask("GET", f"{PODS}/{name}/log"): node for name, node in items.items()}

    print(f"each pod's device and node: {until(seen, lambda found: found == wanted)}")


def pod_without_a_scheduler(cluster: Cluster) -> None:
    """Create a pod for the DRA node with spec.nodeName. The kubelet starts it without the device in its limits."""
    spec = {**_limited("ls /dev | grep camera || echo none; exec sleep 3600"), "nodeName": NODE}
    cluster.ask("POST", PODS, {"metadata": {"name": "by-name"}, "spec": spec})
    until_printed(cluster, "by-name", "none\n")


def static_pod_is_gone(cluster: Cluster) -> None:
    """Wait until the kubelet has ended the static pod, whose object comes back when somebody else deletes it."""
    until(
        lambda: [pod["metadata"]["name"] for pod in cluster.ask("GET", PODS)["items"]],
        lambda there: f"by-file-{NODE}" not in there,
    )


def registers_after_kubelet_restart(cluster: Cluster) -> None:
    """Wait until other slices replace those that the kubelet deletes at its start, and a new claim is prepared."""
    before = {uid for uid, _version in json.loads(KEPT.read_text())}
    until(lambda: {uid for uid, _version in identities(cluster)}, lambda uids: uids and before.isdisjoint(uids))
    slices_exact_content_and_owner(cluster)
    create_claim(cluster, "dongle", {"dongle": (DONGLE, "")})
    create_pod(cluster, "new", claim="dongle", script="env | grep ^DEV_; exec sleep 3600")
    until_printed(cluster, "new", "DEV_DONGLE_0=one\n")
    delete_pod(cluster, "new", "dongle")


def pod_to_be_deleted(cluster: Cluster) -> None:
    """Create a pod with a claim."""
    create_claim(cluster, "deleted", {"dongle": (DONGLE, "")})
    create_pod(cluster, "deleted", claim="deleted", script="env | grep ^DEV_; exec sleep 3600")
    until_printed(cluster, "deleted", "DEV_DONGLE_0=one\n")


def deleted_while_kubelet_down(cluster: Cluster) -> None:
    """Delete that pod, and another pod right after the scheduler has chosen its device."""
    create_claim(cluster, "never", {"seat": (SEAT, "")})
    create_pod(cluster, "never", claim="never", script="exec sleep 3600")
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
        delete_object(cluster, f"{CLAIMS}/{name}")


def pod_made_while_kubelet_down(cluster: Cluster) -> None:
    """Create a pod while the kubelet is down. The scheduler binds it while the node still counts as Ready."""
    create_template(cluster, "a-camera", {"camera": (CAMERA, FRONT)})
    create_pod(cluster, "templated", template="a-camera", script="ls /dev | grep -e camera -e dongle; exec sleep 3600")
    until(lambda: cluster.ask("GET", f"{PODS}/templated")["spec"].get("nodeName"), lambda node: node == NODE)


def pod_made_while_kubelet_down_starts(cluster: Cluster) -> None:
    """Wait until that pod runs with its device."""
    until_printed(cluster, "templated", "camera-front\n")


def allocated_before_unplugged(cluster: Cluster) -> None:
    """Create another pod while the kubelet is down. Its device is unplugged before the kubelet is up."""
    create_claim(cluster, "unplugged", {"camera": (CAMERA, REAR)})
    create_pod(cluster, "unplugged", claim="unplugged", script="ls /dev | grep camera; exec sleep 3600")
    until(lambda: cluster.ask("GET", f"{PODS}/unplugged")["spec"].get("nodeName"), lambda node: node == NODE)


def unplugged_is_refused(cluster: Cluster) -> None:
    """Wait until that pod's event names claim, request, device and reason."""
    said = refusal(cluster, "unplugged")
    assert "claim default/unplugged, request camera, device rear " in said, said
    assert "(example.com/camera=rear): /dev/full: No such file or directory" in said, said
    assert cluster.ask("GET", f"{PODS}/unplugged")["status"]["phase"] == "Pending"
    print(said)


def plugged_in_again(cluster: Cluster) -> None:
    """Wait until that pod runs with its device, which is plugged in again."""
    until_running(cluster, "unplugged", after=0)
    until_printed(cluster, "unplugged", "camera-rear\n")
    delete_pod(cluster, "unplugged", "unplugged")


def slices_away_without_credentials(cluster: Cluster) -> None:
    """Delete the node's slices. Without a certificate, the plugin cannot create them again."""
    for each in node_slices(cluster):
        cluster.ask("DELETE", f"{SLICES}/{each['metadata']['name']}")
    time.sleep(2)
    assert node_slices(cluster) == []


def pods_before_a_reboot(cluster: Cluster) -> None:
    """Create a pod whose claim needs a CDI spec of its own, beside the pod whose claim needs none."""
    create_claim(cluster, "dongle", {"dongle": (DONGLE, "")})
    create_pod(cluster, "specific", claim="dongle", script="env | grep ^DEV_; exec sleep 3600")
    until_printed(cluster, "specific", "DEV_DONGLE_0=one\n")
    containers = {name: container_id(cluster, name) for name in ("specific", "templated")}
    KEPT.write_text(json.dumps(containers))


def keeps_its_devices_over_a_reboot(cluster: Cluster) -> None:
    """Wait until other containers of the same pods run, with the same devices."""
    for name, before in json.loads(KEPT.read_text()).items():
        until(lambda: container_id(cluster, name), lambda now: now not in ("", before))  # noqa: B023
    until_printed(cluster, "specific", "DEV_DONGLE_0=one\n")
    keeps_its_device(cluster)
    delete_pod(cluster, "specific", "dongle")


def pod_that_ends(cluster: Cluster) -> None:
    """Create a pod with a claim that ends after some seconds."""
    create_claim(cluster, "ends", {"dongle": (DONGLE, "")})
    create_pod(cluster, "ends", claim="ends", script="env | grep ^DEV_; exec sleep 15", restarts=False)
    until_printed(cluster, "ends", "DEV_DONGLE_0=one\n")


def has_ended(cluster: Cluster) -> None:
    """Check that this pod ended by itself, and that its claim is free."""
    assert cluster.ask("GET", f"{PODS}/ends")["status"]["phase"] == "Succeeded"
    until(lambda: cluster.ask("GET", f"{CLAIMS}/ends").get("status") or {}, lambda status: "allocation" not in status)


def _limited(script: str) -> dict[str, Any]:
    """Return the spec of a pod with a camera in its limits."""
    container = {
        "name": "main",
        **IMAGE,
        "command": ["sh", "-c", script],
        "resources": {"limits": {CAMERA: "1"}},
    }
    # The node of the device plugin is the control plane's, which has a taint.
    tolerated = {"tolerations": [{"operator": "Exists"}]}
    quick = {"hostNetwork": True, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    return {"containers": [container], **tolerated, **quick}


if __name__ == "__main__":
    expect(
        *STEPS,
        claim_by_attribute,
        unused_claim_still_prepared,
        force_deleted,
        devices_to_the_right_containers,
        sharing_a_claim,
        admin_access,
        ten_pods_at_once,
        device_plugin_and_dra_nodes_together,
        pod_without_a_scheduler,
        static_pod_is_gone,
        registers_after_kubelet_restart,
        pod_to_be_deleted,
        deleted_while_kubelet_down,
        deleted_pods_end_after_restart,
        pod_made_while_kubelet_down,
        pod_made_while_kubelet_down_starts,
        allocated_before_unplugged,
        unplugged_is_refused,
        plugged_in_again,
        slices_away_without_credentials,
        pods_before_a_reboot,
        keeps_its_devices_over_a_reboot,
        pod_that_ends,
        has_ended,
    )
