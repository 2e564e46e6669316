"""Measures a profile of thousands of nodes, and many hosts: ``python -m bench.scale [NODES [HOSTS ...]]``.

The API server, etcd, the DaemonSet controller and the scheduler are real (KUBERNETES_BIN_DIR). Nodes and pods exist
only as objects: this module reports what their kubelets would report. It runs the playbooks, and counts their requests
in the API server's audit log. Then it measures a play without a change on simulated HOSTS; see controller.py. It fails
if a number is above its limit, except times.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import real

from node_device_plugin.cluster import manifests

from . import controller
from .cluster import PAGE, Cluster, api_server, writes
from .figures import Figure, table
from .fleet import missed
from .plays import CHECKOUT, Run, play

NODES = 5000
HOSTS = (40, 1000)
#: The number of nodes in each group that differs from the others.
_DIFFERENT = 10
#: Requests of a play beside the pages of its lists: a play that waits asks again.
_FEW = 200
#: Writes of a new profile: the namespace, the ConfigMap twice and the DaemonSet.
_OBJECTS = 4
#: As in role verification.
_SAMPLE = 3
_RESOURCE, _DEVICES = "example.com/gpu", 8
_NAME, _NAMESPACE, _IMAGE, _LABELS = "gpu", "node-devices", "example.com/plugin:1", {"pool": "gpu"}
#: Seconds until a kubelet syncs a changed ConfigMap.
_SYNC = 2.0
_THREADS = 8
_TIMEOUT = 600.0
#: Programs, with their options beside those of all. The node controller would notice that no kubelet renews its lease.
_CONTROLLERS = {
    "kube-controller-manager": ["--controllers=daemonset-controller,serviceaccount-controller"],
    "kube-scheduler": [],
}


@contextlib.contextmanager
def running(directory: pathlib.Path) -> Iterator[Cluster]:
    """Yield a control plane. directory: writable. Raises RuntimeError without the programs."""
    found = real.programs()
    programs = os.path.dirname(found[0]) if found else "/nonexistent"
    if not all(shutil.which(name, path=programs) for name in _CONTROLLERS):
        raise RuntimeError("KUBERNETES_BIN_DIR names no control plane: run make kubernetes first")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(api_server(directory, {}))
        options = ["--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=2000", "--secure-port=0"]
        for name, more in _CONTROLLERS.items():
            log = stack.enter_context((real.EVIDENCE / f"{name}.log").open("wb"))
            command = [os.path.join(programs, name), f"--kubeconfig={cluster.kubeconfig}", *options, *more]
            process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield cluster


def _await(look: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not look():
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {_TIMEOUT:g} s, {otherwise}: {real.EVIDENCE} has the logs")
        time.sleep(2)


def _each(work: Callable[[Any], object], items: Sequence[Any]) -> None:
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(work, items):
            pass


class Kubelets:
    """Reports what the nodes' kubelets would report, and answers for the plugins of all pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._address = _own_address()
        self._shown, self._seen, self._since = "", "", 0.0

    def join(self, name: str) -> None:
        """Create a node object as large as a real one: a kubelet reports 50 images."""
        labels = {**_LABELS, "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64"}
        counts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        types = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        image = "registry.example.com/team/some-service-%d"
        status = {
            "capacity": counts,
            "allocatable": counts,
            "conditions": [{"type": kind, "status": value, "reason": "Reported"} for kind, value in types.items()],
            "addresses": [{"type": "Hostname", "address": name}],
            "images": [
                {"names": [f"{image % each}@sha256:{each:064x}", f"{image % each}:1.2.3"], "sizeBytes": 123456789}
                for each in range(50)
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.2.1",
                "kubeletVersion": "v1.37.2",
                "operatingSystem": "linux",
                "osImage": "Debian GNU/Linux 13 (trixie)",
                **dict.fromkeys(("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "systemUUID"), "x"),
            },
        }
        self._cluster.ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
        devices = {_RESOURCE: str(_DEVICES)}
        self.report(name, capacity=devices, allocatable=devices)

    def report(self, name: str, **status: Any) -> None:
        path = f"/api/v1/nodes/{name}/status?fieldManager=kubelet"
        self._cluster.ask("PATCH", path, {"status": status}, "application/strategic-merge-patch+json")

    def start_pods(self) -> None:
        """Report every pod as running."""
        _each(self._start, [pod for pod in self.pods() if pod["status"]["phase"] == "Pending"])

    @contextlib.contextmanager
    def starting(self, names: Sequence[str]) -> Iterator[None]:
        """Report the pods of some nodes as running, as soon as they are bound."""
        is_over = threading.Event()

        def work() -> None:
            waiting = set(names)
            while waiting and not is_over.wait(1):
                for name in sorted(waiting):
                    for pod in self.pods(fieldSelector=f"spec.nodeName={name}"):
                        self._start(pod)
                        waiting.discard(name)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def differ(self, names: Sequence[str]) -> None:
        """Let three groups of nodes differ: not Ready, with a device less, and without the plugin's image."""
        silent, poorer, without = (names[number::3][:_DIFFERENT] for number in range(3))
        for name in silent:
            self.report(name, conditions=[{"type": "Ready", "status": "Unknown", "message": "silent"}])
        for name in poorer:
            self.report(name, allocatable={_RESOURCE: str(_DEVICES - 1)})
        waiting = {"ready": False, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        for pod in self.pods():
            if pod["spec"]["nodeName"] in without:
                self.report_pod(pod, waiting)

    def pods(self, **selectors: str) -> list[dict[str, Any]]:
        return self._cluster.list(f"/api/v1/namespaces/{_NAMESPACE}/pods", **selectors)

    def _start(self, pod: dict[str, Any]) -> None:
        container = {"ready": True, "started": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        self.report_pod(pod, container)

    def report_pod(self, pod: dict[str, Any], container: dict[str, Any]) -> None:
        """Report a pod with its container's state."""
        image = {"image": _IMAGE, "imageID": f"example.com/plugin@sha256:{1:064x}"}
        status = {
            "phase": "Running" if container["ready"] else "Pending",
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [{"type": "Ready", "status": str(container["ready"])}],
            "containerStatuses": [{"name": manifests.CONTAINER, "restartCount": 0, **image, **container}],
        }
        path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod['metadata']['name']}/status"
        self._cluster.ask("PATCH", path, {"status": status}, "application/merge-patch+json")

    @contextlib.contextmanager
    def answering(self) -> Iterator[int]:
        """Serve the metrics of every pod's plugin, which applies the default configuration; yields the port."""
        kubelets = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                said = f'node_device_plugin_configuration_info{{sha256="{kubelets._applied()}"}} 1\n'
                said += 'node_device_plugin_build_info{version="0.1.0"} 1\n'
                self.send_response(200)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said.encode())

            def log_message(self, *_arguments: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer((self._address, 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()

    def _applied(self) -> str:
        """Return the hash of the configuration that the plugins have: a kubelet needs a moment to sync a ConfigMap."""
        data = self._cluster.ask("GET", f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{_NAME}")["data"]
        now = manifests.sha256_of(data[manifests.DEFAULT])
        if now != self._seen:
            self._seen, self._since = now, time.monotonic()
        if not self._shown or time.monotonic() > self._since + _SYNC:
            self._shown = self._seen
        return self._shown


def _own_address() -> str:
    """Return this machine's address. The API server connects to no pod with a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # A datagram socket connects without sending anything.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


class Ran(NamedTuple):
    """A play. requests: its number by verb and kind. changed: the objects that the play, or a controller, changed."""

    run: Run
    requests: dict[str, int]
    changed: frozenset[str]

    @property
    def total(self) -> int:
        return sum(self.requests.values())

    @property
    def writes(self) -> int:
        """The number of requests that may store something."""
        return writes(self.requests)


class Plays:
    """Runs playbooks on an inventory whose only host is the profile. directory: a writable one."""

    def __init__(self, cluster: Cluster, directory: pathlib.Path, port: int) -> None:
        self._cluster, self._port = cluster, port
        self._inventory, self.report = directory / "inventory", directory / "report"
        self._inventory.mkdir()

    def run(self, name: str, replicas: int = 1, may_change: bool = False) -> Ran:
        """Run a playbook. Raises RuntimeError if it fails, or changes something and may not."""
        devices = [{"id": f"gpu{each}", "nodes": [{"path": f"/dev/gpu{each}"}]} for each in range(_DEVICES)]
        resource = {"name": _RESOURCE, "injection": "device_nodes", "replicas": replicas, "devices": devices}
        profile = {
            "node_devices_profile": True,
            "node_devices_kubeconfig": str(self._cluster.kubeconfig),
            "node_devices_report_dir": str(self.report),
            "node_devices_resources": [resource],
            "node_devices_settings": {"http_address": f":{self._port}"},
            "device_plugin_deployment": {"image": _IMAGE, "name": _NAME, "node_selector": _LABELS},
            "verification_sample": _SAMPLE,
        }
        hosts = {"node_devices": {"hosts": {"gpu-pool": profile}}}
        (self._inventory / "hosts.json").write_text(json.dumps(hosts))
        before = self._cluster.versions()
        with self._cluster.counted() as requests:
            # A proof needs a container.
            settings = {"ANSIBLE_SKIP_TAGS": "verify"} if name == "site.yml" else {}
            run = play(CHECKOUT / "playbooks" / name, self._inventory, settings, may_change)
        after = self._cluster.versions()
        changed = frozenset(each for each in {*before, *after} if before.get(each) != after.get(each))
        return Ran(run, dict(requests.most_common()), changed)


def measured(nodes: int, directory: pathlib.Path) -> list[Figure]:
    """Measure a profile of ``nodes`` nodes. Raises RuntimeError for a play or a report that is wrong."""
    figures: list[Figure] = []
    names = ["node-%04d" % number for number in range(nodes)]
    begin, pages = time.monotonic(), 2 * -(-nodes // PAGE)

    def tell(text: str) -> None:
        print("bench: scale: after %.0f s: %s" % (time.monotonic() - begin, text), file=sys.stderr, flush=True)

    def note(what: str, ran: Ran, few: int = _FEW, writes: int = 0, changed: int = 0) -> None:
        """Note a play's figures. The limits: requests beside pages, write requests, and objects that changed."""
        tell(f"{what}: {ran.requests}")
        name = "%d nodes, %s: " % (nodes, what)
        seconds, memory = name + "time", name + "the controller's memory (PSS)"
        figures.append(Figure(name + "requests; floor: pages of nodes and pods", "", ran.total, pages, pages + few))
        figures.append(Figure(name + "write requests", "", ran.writes, most=writes))
        figures.append(Figure(name + "changed objects", "", len(ran.changed), most=changed))
        figures.append(Figure(seconds, "s", ran.run.seconds, most=60))
        figures.append(Figure(memory, "MB", ran.run.pss / 1e6, most=1200))

    with running(directory) as cluster:
        kubelets = Kubelets(cluster)
        _each(kubelets.join, names)
        tell("the nodes have joined")
        with kubelets.answering() as port:
            plays = Plays(cluster, directory, port)
            with kubelets.starting(names[:_SAMPLE]):
                new = plays.run("site.yml", may_change=True)
            # The play waits until the controllers have created the sample's pods, and asks again meanwhile.
            note("site.yml of a new profile", new, few=nodes, writes=_OBJECTS, changed=_OBJECTS + nodes)
            _await(lambda: len(kubelets.pods()) == nodes, "pods are missing")
            _await(lambda: not kubelets.pods(fieldSelector="spec.nodeName="), "pods are not bound")
            tell("each node has its pod")
            note("status.yml while few pods run", plays.run("status.yml"))
            _check(plays.report, wrong=nodes - _SAMPLE, asked=_SAMPLE)
            kubelets.start_pods()
            tell("the pods run")
            note("site.yml without a change", plays.run("site.yml"))
            change = plays.run("site.yml", replicas=2, may_change=True)
            # The ConfigMap, and the annotation with which the play makes a kubelet of the sample sync it.
            note("site.yml with a change", change, writes=1 + 2 * _SAMPLE, changed=1 + _SAMPLE)
            kubelets.differ(names)
            note("status.yml", plays.run("status.yml", replicas=2))
            # Of the nodes that differ, only those with fewer devices have a plugin that answers.
            _check(plays.report, wrong=3 * _DIFFERENT, asked=_SAMPLE + _DIFFERENT)
    return figures


def _check(report: pathlib.Path, wrong: int, asked: int) -> None:
    """Check how many nodes are wrong, and how many plugins were asked. Raises RuntimeError."""
    summary = json.loads((report / "status.json").read_text())["summary"]
    plugins = summary["versions"]["plugin"]
    found = summary["nodes"]["wrong"], sum(plugins.values()) - plugins["unknown"]
    if found != (wrong, asked):
        raise RuntimeError("%d wrong nodes and %d asked plugins expected, not %d and %d" % (wrong, asked, *found))
    if "Only the plugins of a sample" not in (report / "status.html").read_text():
        raise RuntimeError("the page does not say what is unseen")


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the table. Returns 1 if a figure except times is above its limit."""
    # Otherwise the programs would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_arguments: sys.exit(1))
    nodes = int(arguments[0]) if arguments else NODES
    hosts = [int(count) for count in arguments[1:]] if arguments else HOSTS
    figures: list[Figure] = []
    problems: list[str]
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        try:
            figures += measured(nodes, pathlib.Path(scratch))
            for count in hosts:
                figures += controller.measured([CHECKOUT], pathlib.Path(scratch) / str(count), count, 1)
            problems = missed(figures)
        except RuntimeError as error:
            problems = [str(error)]
    print(table(figures))
    for problem in problems:
        print("bench: scale: %s" % problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
