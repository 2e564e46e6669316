"""Checks, through the API, what pods get by ResourceClaims, also of a driver in a pod: expect.py KUBECONFIG STEP...

The steps have the names of the tests in Kubernetes' test/e2e_node/dra_test.go and test/e2e/dra that check the same.
"""

from __future__ import annotations

import calendar
import json
import pathlib
import re
import time
from typing import Any

import yaml
from claims import (
    API,
    CLAIMS,
    CLASSES,
    DECLARED,
    DRIVER,
    IMAGE,
    NODE,
    SEAT,
    SLICES,
    STEPS,
    TEMPLATES,
    allow_admin_access,
    claim_spec,
    class_of,
    create_claim,
    create_pod,
    delete_object,
    delete_pod,
    minor,
    node_slices,
    published,
    refusal,
    remember_slices,
    until_printed,
    until_running,
)
from cluster_api import PODS, TIMEOUT, Cluster, expect, until

LAMP, STICK, TORCH = (f"example.com/{name}" for name in ("lamp", "stick", "torch"))
DAEMON_SET = "/apis/apps/v1/namespaces/node-devices/daemonsets/node-device-plugin"
CONFIGURATIONS = "/api/v1/namespaces/node-devices/configmaps/node-device-plugin"
STICK_A, STICK_B = ("device.attributes[%r].id == %r" % (DRIVER, name) for name in "ab")
#: Prints a container's devices and variables.
LOOK = "ls /dev | grep -e camera -e dongle -e stick -e torch; env | grep ^DEV_ | sort"
FILES = pathlib.Path(__file__).with_name("files")
TAINT = {"key": "nodedevices.kubernetes/unhealthy", "effect": "NoSchedule"}


def holds_a_share(cluster: Cluster) -> None:
    """Create a pod that reads its device again and again, and ends if it cannot."""
    create_claim(cluster, "holder", {"stick": (STICK, STICK_A)})
    reads = "while head -c 1 /dev/stick-a >/dev/null; do sleep 1; done"
    create_pod(cluster, "holder", claim="holder", script=f"{LOOK}; {reads}")
    until_printed(cluster, "holder", "stick-a\nDEV_STICKS=a\nDEV_STICK_0=a\n")
    _has_health(cluster, "holder", "Healthy", "")


def unhealthy_gets_no_pod(cluster: Cluster) -> None:
    """Wait until the unplugged device has a taint. The scheduler gives it to no pod; the pod that has it keeps it.

    Before Kubernetes 1.36, the device leaves its slice instead.
    """
    _are_unhealthy(cluster, {"a"})
    create_claim(cluster, "waits", {"stick": (STICK, STICK_A)})
    create_pod(cluster, "waits", claim="waits", script=f"{LOOK}; exec sleep 3600")
    _is_not_scheduled(cluster, "waits")
    _has_health(cluster, "holder", "Unhealthy", "/dev/stick-a")
    _never_restarted(cluster, "holder")


def tolerated(cluster: Cluster) -> None:
    """Create a claim that tolerates the taint. It gets the device, but its pod waits. Up to 1.35, there is no taint."""
    if minor(cluster) < 36:
        return
    spec = claim_spec({"stick": (STICK, STICK_A)})
    spec["devices"]["requests"][0]["exactly"]["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]
    cluster.ask("POST", CLAIMS, {"metadata": {"name": "tolerates"}, "spec": spec})
    create_pod(cluster, "tolerates", claim="tolerates", script=f"{LOOK}; exec sleep 3600")
    print(f"tolerates waits: {refusal(cluster, 'tolerates')}")
    assert cluster.ask("GET", f"{PODS}/tolerates")["status"]["phase"] == "Pending"


def healthy_again(cluster: Cluster) -> None:
    """Wait until the waiting pods run, too: all have a share of the same device."""
    _are_unhealthy(cluster, set())
    if minor(cluster) >= 36:
        until_running(cluster, "tolerates", after=0)
        delete_pod(cluster, "tolerates", "tolerates")
    until_printed(cluster, "waits", "stick-a\nDEV_STICKS=a\nDEV_STICK_0=a\n")
    for name in ("holder", "waits"):
        _has_health(cluster, name, "Healthy", "")
    _never_restarted(cluster, "holder")
    assert len({_allocated(cluster, name) for name in ("holder", "waits")}) == 2


def stopped_driver(cluster: Cluster) -> None:
    """Wait until the kubelet has removed the slices of a driver that does not answer."""
    until(lambda: node_slices(cluster), lambda slices: slices == [])


def unknown_when_stopped(cluster: Cluster) -> None:
    """Wait until a pod's status no longer tells the health of its device. The pod keeps its device.

    The kubelet forgets the health at once, but writes it only when it looks at the pod again: after 60 to 90 s.
    """
    if minor(cluster) < 36:
        return
    begin = time.monotonic()
    _has_health(cluster, "holder", "Unknown", "", timeout=150)
    print(f"the health is Unknown {time.monotonic() - begin:.1f} s after the slices were removed")
    _never_restarted(cluster, "holder")


def driver_back(cluster: Cluster) -> None:
    """Wait until the slices are back. The pods have kept their device."""
    _are_unhealthy(cluster, set())
    for name in ("holder", "waits"):
        _has_health(cluster, name, "Healthy", "")
        _never_restarted(cluster, name)


def two_shares_in_one_request(cluster: Cluster) -> None:
    """Create a pod whose request gets two shares of a device. Its container has the device once."""
    spec = claim_spec({"stick": (STICK, STICK_B)})
    spec["devices"]["requests"][0]["exactly"]["count"] = 2
    cluster.ask("POST", CLAIMS, {"metadata": {"name": "twice"}, "spec": spec})
    create_pod(cluster, "twice", claim="twice", script=f"{LOOK}; exec sleep 3600")
    until_printed(cluster, "twice", "stick-b\nDEV_STICKS=b\nDEV_STICK_0=b\n")
    assert len(_allocated(cluster, "twice")) == 2
    print(f"claim twice: {sorted(_allocated(cluster, 'twice'))}")


def fewer_shares_wait(cluster: Cluster) -> None:
    """Check that a whole device waits for the claims that have its shares."""
    _are_unhealthy(cluster, {"a", "b"})
    create_claim(cluster, "whole", {"stick": (STICK, STICK_A)})
    create_pod(cluster, "whole", claim="whole", script=f"{LOOK}; exec sleep 3600")
    _is_not_scheduled(cluster, "whole")
    delete_pod(cluster, "holder", "holder")
    _is_not_scheduled(cluster, "whole")
    delete_pod(cluster, "waits", "waits")
    until_printed(cluster, "whole", "stick-a\nDEV_STICKS=a\nDEV_STICK_0=a\n")
    _are_unhealthy(cluster, {"b"})
    _never_restarted(cluster, "twice")


def more_shares_at_once(cluster: Cluster) -> None:
    """Check that a claim gets a share while another has two. A device that is held as a whole has no share."""
    _are_unhealthy(cluster, {"a"})
    create_claim(cluster, "third", {"stick": (STICK, STICK_B)})
    create_pod(cluster, "third", claim="third", script=f"{LOOK}; exec sleep 3600")
    until_printed(cluster, "third", "stick-b\nDEV_STICKS=b\nDEV_STICK_0=b\n")
    for name in ("whole", "twice"):
        _never_restarted(cluster, name)


def joined_over_requests(cluster: Cluster) -> None:
    """Create a pod whose containers use all requests of a claim, or one of them."""
    _are_unhealthy(cluster, set())
    create_claim(cluster, "joined", {"one": (STICK, STICK_A), "two": (STICK, STICK_B)})
    users = [
        {"name": name, "command": ["sh", "-c", f"{LOOK}; exec sleep 3600"], "claims": claims}
        for name, claims in {"all": [{}], "one": [{"request": "one"}], "two": [{"request": "two"}]}.items()
    ]
    create_pod(cluster, "joined", claim="joined", containers=users)
    both = "stick-a\nstick-b\nDEV_STICKS=a,b\nDEV_STICK_0=a\nDEV_STICK_1=b\n"
    until_printed(cluster, "joined", both, container="all")
    until_printed(cluster, "joined", "stick-a\nDEV_STICKS=a\nDEV_STICK_0=a\n", container="one")
    until_printed(cluster, "joined", "stick-b\nDEV_STICKS=b\nDEV_STICK_1=b\n", container="two")


def claims_of_a_peer(cluster: Cluster) -> None:
    """Create the claims and pods that correspond to a peer's demos."""
    _create(cluster, FILES / "demos.yml")


def claims_of_vendors(cluster: Cluster) -> None:
    """Create the claims and pods of vendors' documents."""
    _create(cluster, FILES / "vendors.yml")


def _create(cluster: Cluster, path: pathlib.Path) -> None:
    """Create the objects of a file in order. The containers of each pod see what its annotation says."""
    allow_admin_access(cluster)
    places = {"ResourceClaim": CLAIMS, "ResourceClaimTemplate": TEMPLATES, "Pod": PODS}
    for each in yaml.safe_load_all(path.read_text()):
        notes = each["metadata"].get("annotations", {})
        if minor(cluster) < int(notes.get("example.com/from-minor", 0)):
            continue
        if each["kind"] == "Pod":
            for container in each["spec"]["containers"]:
                container.update(IMAGE, command=["sh", "-c", f"{LOOK}; exec sleep 3600"])
            each["spec"].update(hostNetwork=True, automountServiceAccountToken=False, terminationGracePeriodSeconds=1)
        cluster.ask("POST", places[each["kind"]], each)
        if each["kind"] == "Pod":
            _sees(cluster, each["metadata"]["name"], notes["example.com/sees"], each["spec"]["containers"])


def _sees(cluster: Cluster, pod: str, expression: str, containers: list[dict[str, Any]]) -> None:
    """Wait until each container has printed what it sees. A container without claims and limits sees nothing."""
    until_running(cluster, pod)
    for container in containers:
        log = f"{PODS}/{pod}/log?container={container['name']}"
        expected = expression if container.get("resources") else ""
        seen = until(
            lambda: " ".join(cluster.ask("GET", log).split()),  # noqa: B023
            lambda seen: re.fullmatch(expected, seen),  # noqa: B023
        )
        print(f"{pod} {container['name']}: {seen}")


def healthy_without_a_change(cluster: Cluster) -> None:
    """Check that a new pod's device is healthy long after the last change, as the slices tell its time.

    The kubelet forgets a health that the plugin does not repeat within 30 s.
    """
    if minor(cluster) < 36:
        return
    fields = [field for each in node_slices(cluster) for field in each["metadata"]["managedFields"]]
    last = max(calendar.timegm(time.strptime(field["time"], "%Y-%m-%dT%H:%M:%SZ")) for field in fields)
    waited = max(0.0, last + 32 - time.time())
    time.sleep(waited)
    print(f"after {waited:.0f} s more, no slice has changed for {time.time() - last:.0f} s")
    create_claim(cluster, "later", {"seat": (SEAT, "")})
    create_pod(cluster, "later", claim="later", script="exec sleep 3600")
    until_running(cluster, "later")
    _has_health(cluster, "later", "Healthy", "", timeout=5)


def device_taint_rule(cluster: Cluster) -> None:
    """Create a DeviceTaintRule for all devices of the driver: Kubernetes ends the pod of a claim."""
    if minor(cluster) < 37:
        return
    create_claim(cluster, "evicted", {"seat": (SEAT, "")})
    create_pod(cluster, "evicted", claim="evicted", script="exec sleep 3600")
    until_running(cluster, "evicted")
    taint = {"key": "example.com/maintenance", "effect": "NoExecute"}
    rule = {"metadata": {"name": "maintenance"}, "spec": {"deviceSelector": {"driver": DRIVER}, "taint": taint}}
    cluster.ask("POST", f"{API}/devicetaintrules", rule)
    until(lambda: cluster.ask("GET", PODS)["items"], lambda pods: pods == [])
    delete_object(cluster, f"{API}/devicetaintrules/maintenance")


def slice_of_a_former_driver(cluster: Cluster) -> None:
    """Create a slice as another driver of the plugin's name has left it."""
    attributes = {"resource": {"string": "example.com/former"}, "id": {"string": "old"}}
    pool = {"name": "former", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "old", "attributes": attributes}]
    spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": devices}
    cluster.ask("POST", SLICES, {"metadata": {"name": "former-driver"}, "spec": spec})


def claim_of_the_charts_pod(cluster: Cluster) -> None:
    """Create a pod with a claim. The pod of the chart's DaemonSet prepares it."""
    until(lambda: published(cluster), lambda found: found == {TORCH: {"t0": {}}})
    create_claim(cluster, "torch", {"torch": (TORCH, "")})
    create_pod(cluster, "torch", claim="torch", script=f"{LOOK}; exec sleep 3600")
    until_printed(cluster, "torch", "torch\n")


def rolling_update(cluster: Cluster) -> None:
    """Replace the DaemonSet's pod, which also serves a device plugin: from kubelet 1.37 on, both pods serve."""
    version = cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]["nodeInfo"]["kubeletVersion"]
    _replace_pod(cluster, int(int(version.split(".")[1]) >= 37))


def overlapping_update(cluster: Cluster) -> None:
    """Replace the pod of a DaemonSet that serves DRA alone: both pods serve on each kubelet."""
    until(lambda: published(cluster), lambda found: found == {**DECLARED, LAMP: {"l0": {}}})
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
    for name in map(class_of, DECLARED):
        users = cluster.ask("GET", f"{CLASSES}/{name}")["metadata"]["annotations"]["nodedevices.kubernetes/nodes"]
        assert json.loads(users) == [NODE, "node-devices/node-device-plugin"], users


def _plugins(cluster: Cluster) -> list[str]:
    pods = cluster.ask("GET", "/api/v1/namespaces/node-devices/pods")["items"]
    return [each["metadata"]["name"] for each in pods]


def _allocated(cluster: Cluster, claim: str) -> frozenset[str]:
    """Return the names of a claim's devices."""
    results = cluster.ask("GET", f"{CLAIMS}/{claim}")["status"]["allocation"]["devices"]["results"]
    return frozenset(each["device"] for each in results)


def _are_unhealthy(cluster: Cluster, wanted: set[str]) -> None:
    """Wait until exactly these sticks have the taint, each in all of its shares; before 1.36, until they are gone."""
    taints = minor(cluster) >= 36

    def look() -> set[str]:
        healthy: set[str] = set()
        unhealthy: set[str] = set()
        for each in node_slices(cluster):
            for device in each["spec"].get("devices") or ():
                if device["attributes"]["resource"]["string"] == STICK:
                    found = [{key: taint[key] for key in TAINT} for taint in device.get("taints", ())]
                    assert found in ([], [TAINT]), found
                    (unhealthy if found else healthy).add(device["attributes"]["id"]["string"])
        assert not healthy & unhealthy, (healthy, unhealthy)
        return unhealthy if taints else {"a", "b"} - healthy

    until(look, lambda found: found == wanted)
    print(f"unhealthy: {sorted(wanted)}")


def _is_not_scheduled(cluster: Cluster, pod: str) -> None:
    """Wait until the scheduler has refused a pod, and check that the refusal stays."""

    def reason() -> str:
        conditions = cluster.ask("GET", f"{PODS}/{pod}")["status"].get("conditions", ())
        return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")

    print(f"{pod} waits: {until(reason, bool)}")
    time.sleep(3)
    assert not cluster.ask("GET", f"{PODS}/{pod}")["spec"].get("nodeName")


def _has_health(cluster: Cluster, pod: str, health: str, message: str, timeout: float = TIMEOUT) -> None:
    """Wait until a pod's status tells the health of its devices with this message. Before 1.36, it tells nothing."""

    def look() -> list[dict[str, Any]]:
        (container,) = cluster.ask("GET", f"{PODS}/{pod}")["status"]["containerStatuses"]
        return [each for one in container.get("allocatedResourcesStatus", ()) for each in one["resources"]]

    def fine(found: list[dict[str, Any]]) -> bool:
        if minor(cluster) < 36:
            return found == []
        return found != [] and all(each["health"] == health and message in each.get("message", "") for each in found)

    print(f"{pod}: {until(look, fine, timeout)}")


def _never_restarted(cluster: Cluster, pod: str) -> None:
    (container,) = cluster.ask("GET", f"{PODS}/{pod}")["status"]["containerStatuses"]
    assert "running" in container["state"], container
    assert container["restartCount"] == 0, container


if __name__ == "__main__":
    expect(
        *STEPS,
        holds_a_share,
        unhealthy_gets_no_pod,
        tolerated,
        healthy_again,
        stopped_driver,
        unknown_when_stopped,
        driver_back,
        two_shares_in_one_request,
        fewer_shares_wait,
        more_shares_at_once,
        joined_over_requests,
        claims_of_a_peer,
        claims_of_vendors,
        healthy_without_a_change,
        device_taint_rule,
        slice_of_a_former_driver,
        claim_of_the_charts_pod,
        rolling_update,
        overlapping_update,
        in_a_pool,
        of_a_profile,
    )
