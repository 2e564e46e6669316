"""Measures the driver for DRA with a real API server: preparing a claim, 1,000 devices, rest, and memory.

Without KUBERNETES_BIN_DIR (``make kubernetes``) or without root, the module prints a message and measures nothing.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import glob
import itertools
import json
import os
import pathlib
import secrets
import stat
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import real

from node_device_plugin.kubelet.dra.slices import device_name, pool_name
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import dra_health_v1_pb2 as health
from node_device_plugin.wire import dra_health_v1_pb2_grpc as health_grpc
from node_device_plugin.wire import dra_v1_pb2 as api
from node_device_plugin.wire import dra_v1_pb2_grpc as api_grpc
from node_device_plugin.wire import plugin_registration_v1_pb2 as registry
from node_device_plugin.wire import plugin_registration_v1_pb2_grpc as registry_grpc

from . import processes
from .cluster import Cluster, api_server, writes
from .figures import Figure, median, percentile
from .settings import Settings, settings, until

RESOURCES, DEVICES = 10, 100
CALLS = 500
CHANGES = 10
#: Seconds at rest, in which nothing may be written.
REST = float(os.environ.get("BENCH_DRA_REST", "20"))
#: Limits: milliseconds above the floor, and from a change to its ResourceSlice; MiB above device-plugin mode.
OVER_FLOOR, MOST_CHANGE, MORE_RESIDENT = 1.0, 500.0, 10.0
NODE, DRIVER = "bench-node", "dra.example.com"
#: The number of the resource without variables: a claim of its devices has no CDI spec of its own.
PLAIN = RESOURCES - 1
_GROUP = "/apis/resource.k8s.io/v1"
_CLAIMS, _PODS = f"{_GROUP}/namespaces/default/resourceclaims", "/api/v1/namespaces/default/pods"
#: A tmpfs, as /run of a node is, because the plugin records prepared claims there.
_MEMORY = "/dev/shm"


class Kubelet:
    """The kubelet's side of a driver's socket, with one connection for all calls, inside a ``with`` block."""

    def __init__(self, socket: str) -> None:
        self._channel = grpc.insecure_channel("unix:" + socket, options=[("grpc.default_authority", "localhost")])
        self._driver = api_grpc.DRAPluginStub(self._channel)

    def __enter__(self) -> Kubelet:
        return self

    def __exit__(self, *_error: object) -> None:
        self._channel.close()

    def register(self) -> None:
        """Register the driver, and follow the health of its devices."""
        plugin = registry_grpc.RegistrationStub(self._channel)
        plugin.GetInfo(registry.InfoRequest())
        plugin.NotifyRegistrationStatus(registry.RegistrationStatus(plugin_registered=True))
        stream = health_grpc.DRAResourceHealthStub(self._channel).NodeWatchResources(health.NodeWatchResourcesRequest())

        def follow() -> None:
            with contextlib.suppress(grpc.RpcError):
                collections.deque(stream, maxlen=0)

        threading.Thread(target=follow, daemon=True).start()

    def prepare(self, claim: api.Claim) -> api.NodePrepareResourcesResponse:
        """Prepare a claim. Raises RuntimeError if the driver refuses."""
        answer: api.NodePrepareResourcesResponse = self._driver.NodePrepareResources(
            api.NodePrepareResourcesRequest(claims=[claim])
        )
        if answer.claims[claim.uid].error:
            raise RuntimeError(answer.claims[claim.uid].error)
        return answer

    def unprepare(self, claim: api.Claim) -> None:
        """Release a claim."""
        self._driver.NodeUnprepareResources(api.NodeUnprepareResourcesRequest(claims=[claim]))


def measure() -> list[Figure]:
    """Measure everything. Raises RuntimeError if the plugin does not do its work."""
    if not real.programs() or os.geteuid() != 0:
        print("bench: dra: left out: run make kubernetes first, and run the benchmark as root", file=sys.stderr)
        return []
    token = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        api_server(pathlib.Path(scratch), {token: f"system:node:{NODE}"}) as cluster,
    ):
        cluster.ask("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        kubeconfig = str(cluster.kubeconfig_of("kubelet", token))
        more = {"api": "dra", "dra": {"driver": DRIVER, "node": NODE, "kubeconfig": kubeconfig}}
        with settings(RESOURCES, DEVICES, more, _MEMORY) as given:
            return _of_driver(cluster, given, kubeconfig)


def _of_driver(cluster: Cluster, given: Settings, kubeconfig: str) -> list[Figure]:
    _drop_variables(given)
    for each in itertools.product(range(RESOURCES), range(DEVICES)):
        # All links lead to one device, which only one id may have here.
        os.unlink(given.node(*each))
        _plug_in(given.node(*each))
    cluster.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    plain, with_env = _allocated(cluster, given, PLAIN), _allocated(cluster, given, 0)
    with processes.plugin(given.config, given.log) as process:
        socket = _await_socket(given)
        with Kubelet(socket) as kubelet:
            kubelet.register()
            begin = process.started
            start = (_until(lambda: _published(cluster) == RESOURCES * DEVICES, given) - begin) * 1e3
            changes = list(_changes(cluster, given))
            prepared = [
                *_prepare("prepare one claim", kubelet, given, kubeconfig, plain),
                *_prepare("prepare one claim with variables", kubelet, given, kubeconfig, with_env),
            ]
            kubelet.prepare(with_env)
            time.sleep(2)
            with cluster.counted() as requests:
                before = process.cpu()
                time.sleep(REST)
                cpu = (process.cpu() - before) / REST * 100
            resident = process.resident()
    as_plugin = asyncio.run(_device_plugin())
    return [
        *prepared,
        Figure("DRA: 1,000 devices: start to published", "ms", start),
        Figure(
            "DRA: 1,000 devices: change to published, median of %d" % CHANGES, "ms", median(changes), most=MOST_CHANGE
        ),
        Figure("DRA: 1,000 devices: writes in %g s at rest" % REST, "", writes(requests), most=0),
        Figure("DRA: 1,000 devices: idle CPU", "%", cpu),
        Figure(
            "DRA: 1,000 devices: resident; floor: device plugin", "MiB", resident, as_plugin, as_plugin + MORE_RESIDENT
        ),
    ]


def _drop_variables(given: Settings) -> None:
    """Take the variables from one resource of the configuration."""
    with open(given.config) as file:
        configuration = json.load(file)
    del configuration["resources"][PLAIN]["env"]
    with open(given.config, "w") as file:
        json.dump(configuration, file)


def _allocated(cluster: Cluster, given: Settings, number: int) -> api.Claim:
    """Create a claim that is allocated as by a scheduler, and its pod, without which a kubelet may not read it.

    number: of the resource.
    """
    name, exactly = f"bench-{number}", {"deviceClassName": "any"}
    spec = {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}
    made = cluster.ask("POST", _CLAIMS, {"metadata": {"name": name}, "spec": spec})
    pool = pool_name(NODE, given.resources[number])
    result = {"request": "device", "driver": DRIVER, "pool": pool, "device": device_name(given.id(number, 0))}
    status = {"allocation": {"devices": {"results": [result]}}}
    cluster.ask("PUT", f"{_CLAIMS}/{name}/status", {**made, "status": status})
    pod = {
        "nodeName": NODE,
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "device"}]}}],
        "resourceClaims": [{"name": "device", "resourceClaimName": name}],
    }
    cluster.ask("POST", _PODS, {"metadata": {"name": name}, "spec": pod})
    return api.Claim(uid=made["metadata"]["uid"], namespace="default", name=name)


def _first(kubelet: Kubelet, claim: api.Claim) -> api.NodePrepareResourcesResponse:
    """Prepare and release the claim once. Until then, the Node authorizer may not know the pod."""
    for _ in range(100):
        with contextlib.suppress(RuntimeError):
            answer = kubelet.prepare(claim)
            kubelet.unprepare(claim)
            return answer
        time.sleep(0.1)
    raise RuntimeError("the plugin does not prepare the claim")


def _prepare(what: str, kubelet: Kubelet, given: Settings, kubeconfig: str, claim: api.Claim) -> list[Figure]:
    """Prepare and release a claim many times, in turn with the floor."""
    ours: list[float] = []
    floors: list[float] = []

    def timed(kubelet: Kubelet, taken: list[float]) -> None:
        # Pods start seldom, so neither finds an API server that is still busy with the other's request.
        time.sleep(0.002)
        started = time.perf_counter()
        kubelet.prepare(claim)
        taken.append((time.perf_counter() - started) * 1e3)

    answer = _first(kubelet, claim)
    with _floor(given, kubeconfig, claim, answer) as socket, Kubelet(socket) as floor:
        for _ in range(CALLS):
            timed(floor, floors)
            timed(kubelet, ours)
            kubelet.unprepare(claim)
    p50, floor_p50 = median(ours), median(floors)
    return [
        Figure("DRA: %s, p50" % what, "ms", p50, floor_p50, floor_p50 + OVER_FLOOR),
        Figure("DRA: %s, p99" % what, "ms", percentile(ours, 0.99), percentile(floors, 0.99)),
    ]


@contextlib.contextmanager
def _floor(
    given: Settings, kubeconfig: str, claim: api.Claim, answer: api.NodePrepareResourcesResponse
) -> Iterator[str]:
    """Run the floor; yields its socket."""
    socket, path = (os.path.join(given.directory, f"{claim.name}.{name}") for name in ("sock", "answer"))
    with open(path, "wb") as file:
        file.write(answer.SerializeToString())
    arguments = ("bench.dra_floor", socket, kubeconfig, f"{_CLAIMS}/{claim.name}", path)
    with processes.Measured(*arguments, log=given.log):
        _until(lambda: os.path.exists(socket), given)
        yield socket


def _changes(cluster: Cluster, given: Settings) -> Iterator[float]:
    """Unplug and plug in devices; yields the milliseconds until the slices show it."""
    number = RESOURCES * DEVICES
    for change in range(CHANGES // 2):
        for expected in (number - 1, number):
            # For a second after a change, the plugin holds back further changes.
            time.sleep(1.2)
            path = given.node(change % RESOURCES, 1 + change)
            started = time.monotonic()
            if expected < number:
                os.unlink(path)
            else:
                _plug_in(path)
            yield (_until(lambda: _published(cluster) == expected, given) - started) * 1e3  # noqa: B023


def _plug_in(path: str) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


def _published(cluster: Cluster) -> int:
    """The number of devices in slices that are healthy."""
    selector = urllib.parse.quote(f"spec.nodeName={NODE}")
    slices: list[dict[str, Any]] = cluster.ask("GET", f"{_GROUP}/resourceslices?fieldSelector={selector}")["items"]
    return sum("taints" not in device for each in slices for device in each["spec"].get("devices") or ())


def _until(condition: Any, given: Settings, timeout: float = 30.0) -> float:
    """Wait for a condition; returns the monotonic time. Raises RuntimeError with the end of the log."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("not reached in %g s; the log ends with:\n%s" % (timeout, given.log_end()))
        time.sleep(0.005)
    return time.monotonic()


def _await_socket(given: Settings) -> str:
    pattern = os.path.join(given.directory, "plugins_registry", "*.sock")
    _until(lambda: glob.glob(pattern), given)
    return str(glob.glob(pattern)[0])


async def _device_plugin() -> float:
    """Return the resident memory of a plugin that serves the same devices through the device plugin API, in MiB."""
    with settings(RESOURCES, DEVICES) as given:
        async with given.kubelet() as kubelet:
            with processes.plugin(given.config, given.log) as process:
                await until(lambda: given.all_connected(kubelet))
                await asyncio.sleep(2)
                return process.resident()
