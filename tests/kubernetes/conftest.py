"""A cluster's API: the stand-in, and the real API server of KUBERNETES_BIN_DIR, with the same tests."""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import shutil
import socket
import ssl
import sys
import threading
import time
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible.plugins.action import ActionBase

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import certificates
import real
import stand_in
from ansible_collections.nodedevices.kubernetes.plugins.action import extended_resources
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import framed, preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import same_machine as same_machines

_READER = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "subjects": [{"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"},
    },
]

#: The version of the real API server, once it has answered.
_judge: list[str] = []


class Cluster:
    """An API server, as the tests use it beside the code under test."""

    def __init__(self, directory: pathlib.Path, authority: certificates.Authority, port: int) -> None:
        self.directory, self.authority, self.server = directory, authority, f"https://localhost:{port}"
        tls = ssl.create_default_context(cafile=str(authority.path))
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )
        self._numbers = itertools.count()

    def kubeconfig(self, user: dict[str, Any] | None = None, **cluster: Any) -> str:
        """A kubeconfig file's path; user: in the file's keys, the administrator by default."""
        path = self.directory / f"kubeconfig-{next(self._numbers)}"
        of_cluster = {"server": self.server, "certificate-authority": str(self.authority.path), **cluster}
        content = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {key: value for key, value in of_cluster.items() if value}}],
            "users": [{"name": "test", "user": {"token": "admin-token"} if user is None else user}],
        }
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def ask(self, method: str, path: str, content: Any = None, kind: str = "application/json") -> dict[str, Any]:
        headers = {"Authorization": "Bearer admin-token", "Content-Type": kind}
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.server}{path}", data, headers, method=method)
        with self.opener.open(request, timeout=10) as answer:
            return json.load(answer)

    def node(self, capacity: dict[str, str] | None = None, name: str = "") -> Node:
        """A new node, whose kubelet has reported ``capacity``, or nothing yet where it is None."""
        node = Node(self, name or f"node-{next(self._numbers)}")
        node.create(capacity)
        return node


class Node:
    """A node object, and what its kubelet does."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        #: What the kubelet's checkpoint has of device plugins.
        self.registered: set[str] = set()
        #: Of device plugins that have gone: for five minutes it writes them as 0.
        self.not_forgotten: set[str] = set()

    def create(self, capacity: dict[str, str] | None) -> None:
        self.cluster.ask("POST", "/api/v1/nodes", {"metadata": {"name": self.name, "annotations": {"of": "others"}}})
        if capacity is not None:
            self.patch("kubelet", [{"op": "add", "path": "/status/capacity", "value": capacity}])

    def delete(self) -> None:
        self.cluster.ask("DELETE", f"/api/v1/nodes/{self.name}")

    def read(self) -> dict[str, Any]:
        return self.cluster.ask("GET", f"/api/v1/nodes/{self.name}")

    def patch(self, manager: str, operations: list[dict[str, Any]]) -> None:
        """Of its status, as ``manager`` does."""
        path = f"/api/v1/nodes/{self.name}/status?fieldManager={manager}"
        self.cluster.ask("PATCH", path, operations, "application/json-patch+json")

    def set_capacity(self, manager: str, name: str, value: str) -> None:
        self.patch(manager, [{"op": "add", "path": f"/status/capacity/{name.replace('/', '~1')}", "value": value}])

    @property
    def extended(self) -> dict[str, str]:
        """The extended resources in its capacity."""
        return {name: value for name, value in self.read()["status"]["capacity"].items() if "/" in name}

    @property
    def annotations(self) -> dict[str, str]:
        return self.read()["metadata"]["annotations"]

    def version(self) -> str:
        """Of the object, once its kubelet has followed."""
        for _ in range(500):
            node = self.read()
            if node["status"].get("allocatable") == node["status"].get("capacity"):
                return str(node["metadata"]["resourceVersion"])
            time.sleep(0.02)
        raise AssertionError("its kubelet does not follow: %s" % node["status"])

    @contextlib.contextmanager
    def kubelet(self) -> Iterator[None]:
        """Makes what is patched allocatable, as a kubelet does, only sooner."""
        stop = threading.Event()

        def follow() -> None:
            while not stop.is_set():
                # The node object may be away for a moment.
                with contextlib.suppress(urllib.error.HTTPError):
                    status = self.read()["status"]
                    usable = {**status.get("capacity", {}), **dict.fromkeys(self.not_forgotten, "0")}
                    if status.get("allocatable", {}) != usable:
                        follows = {"op": "add", "path": "/status/allocatable", "value": usable}
                        self.patch("kubelet", [follows])
                stop.wait(0.02)

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@pytest.fixture(scope="session", params=["stand_in", "real_api_server"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp(request.param)
    authority = certificates.Authority(directory)
    shutil.rmtree(real.EVIDENCE, ignore_errors=True)
    if request.param == "stand_in":
        with stand_in.serving(authority.sign("api-server"), authority.path) as port:
            yield Cluster(directory, authority, port)
        return
    if not real.programs():
        pytest.fail(
            "KUBERNETES_BIN_DIR names no kube-apiserver and etcd. Build them: make kubernetes. Then: make api-server"
        )
    with real.serving(directory, authority, stand_in.TOKENS) as port:
        started = Cluster(directory, authority, port)
        real.wait_until_ready(started.opener, started.server, "admin-token")
        _judge.append(started.ask("GET", "/version")["gitVersion"])
        for item in _READER:
            plural = f"{item['kind'].lower()}s"
            started.ask("POST", f"/apis/{item['apiVersion']}/{plural}", item)
        yield started


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    # tests/run reads this line.
    if _judge:
        terminalreporter.write_line(f"judged by: kube-apiserver {_judge[0]}")
    if exitstatus and real.EVIDENCE.exists():
        terminalreporter.write_line(f"{real.EVIDENCE} has the logs of the API server and of etcd")


@pytest.fixture
def unused_server() -> Iterator[str]:
    """The address of an API server that is not there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"https://127.0.0.1:{unused.getsockname()[1]}"


@pytest.fixture(autouse=True)
def same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host is its node's machine, because the nodes of most tests are no machines."""
    monkeypatch.setattr(preflight.Preflight, "_other_machine", lambda *_arguments: same_machines.Checked())


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the action for a node: run(node, capacities, the plugin's resources, check=, **arguments)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(extended_resources, "_PAUSE", 0.02)

    def run_action(
        node: Node,
        capacities: dict[str, int],
        served: tuple[str, ...] = (),
        check: bool = False,
        api_only: bool = False,
        **given: Any,
    ):
        action = object.__new__(extended_resources.ActionModule)
        declared = {
            "capacities": capacities,
            "resources": [{"name": name} for name in served],
            "kubelet_device_plugin_dir": "/var/lib/kubelet/device-plugins",
        }
        arguments = {"declaration": declared, "kubeconfig": cluster.kubeconfig(), "node_name": node.name, **given}
        action._task = types.SimpleNamespace(args=arguments, check_mode=check)
        checkpoint = json.dumps({"Data": {"RegisteredDevices": {name: [] for name in node.registered}}})
        monkeypatch.setattr(framed, "run", lambda _action, _line: framed.Said(0, checkpoint, ""))
        action._templar = types.SimpleNamespace(template=lambda value: value)
        return action.run(None, {"inventory_hostname": "worker1", "node_devices_api_only": api_only})

    return run_action
