"""The plugin's pod: root without any of root's powers, and of the host only what it must see."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...support.sockets import INSTANCE_SOCKET, OVERLAP, SOCKET_DIRECTORY, status_socket
from .deployment import Deployment
from .nodes import CONFIGURATIONS, CommonGround

#: In the image; what runs every few seconds starts Python without the command's own imports.
_PROBE = ("/opt/node-device-plugin/bin/python", "-I", "-m", "node_device_plugin.status_api.probe")
_PORT = "http"
#: Also of what is mounted below, where kernel and runtime can do that (Kubernetes 1.31, containerd 2.0, Linux 5.12).
_READ_ONLY = {"readOnly": True, "recursiveReadOnly": "IfPossible"}
#: The container's name.
CONTAINER = "plugin"


#: Of the pod alone, where another instance may have the node's status socket. No directory of the host is mounted here.
_INSTANCE = "/node-device-plugin"


class _Volume(NamedTuple):
    """A directory of the host. kind: what Kubernetes does where it is missing."""

    name: str
    path: str
    kind: str
    writable: bool = False


def pods_overlap(spec: Mapping[str, Any]) -> bool:
    """Whether a pod of this spec serves while another instance does."""
    return any(env.get("name") == OVERLAP for each in spec["containers"] for env in each.get("env") or ())


def pod_spec(
    deployment: Deployment, ground: CommonGround, affinity: Mapping[str, Any], overlaps: bool = False
) -> dict[str, Any]:
    """The spec of a pod. affinity: which nodes it may run on, in the keys of a pod spec.

    overlaps: whether it may serve while another instance does.
    """
    # A path can be mounted once only; what is looked at as well, such as devices beside CDI specs, comes last.
    volumes: list[_Volume] = []
    for volume in _volumes(ground):
        if volume.path not in {other.path for other in volumes}:
            volumes.append(volume)
    spec: dict[str, Any] = {
        **affinity,
        # It speaks to its kubelet over sockets alone, and never to the API server.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # It looks up no name.
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 10,
        "tolerations": [dict(toleration) for toleration in deployment.tolerations],
        "securityContext": {
            # The kubelet's sockets are root's. No capability comes with it, so it is bound by files' permissions.
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(deployment, ground, volumes, overlaps)],
        "volumes": [
            # Whole, and never by subPath: a file that is mounted so never changes while the pod runs.
            {"name": "configurations", "configMap": {"name": deployment.name}},
            *({"name": each.name, "hostPath": {"path": each.path, "type": each.kind}} for each in volumes),
            *([{"name": "instance", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}] if overlaps else []),
        ],
    }
    if deployment.priority_class:
        spec["priorityClassName"] = deployment.priority_class
    if deployment.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in deployment.image_pull_secrets]
    return spec


def _container(deployment: Deployment, ground: CommonGround, volumes: list[_Volume], overlaps: bool) -> dict[str, Any]:
    socket = _INSTANCE + "/status.sock" if overlaps else status_socket(ground.kubelet_device_plugin_dir)
    environment: list[dict[str, Any]] = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    if overlaps:
        environment += [{"name": OVERLAP, "value": "true"}, {"name": INSTANCE_SOCKET, "value": socket}]
    security: dict[str, Any] = {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    if deployment.selinux_type is not None:
        # Not of the pod: what holds its network namespace open needs no way to the kubelet.
        security["seLinuxOptions"] = {"type": deployment.selinux_type}
    return {
        "name": CONTAINER,
        "image": deployment.image,
        "imagePullPolicy": deployment.image_pull_policy,
        "args": ["run", "--config", CONFIGURATIONS + "/$(NODE_NAME)"],
        "env": environment,
        "ports": [{"name": _PORT, "containerPort": ground.port}],
        # Another instance may still have to end, which it waits for: what comes after a start is not held against it.
        "startupProbe": _probe(socket, "/healthz", period=1, failures=600),
        "livenessProbe": _probe(socket, "/healthz", period=10, failures=3),
        "readinessProbe": _probe(socket, "/readyz", period=5, failures=1),
        "resources": {key: dict(value) for key, value in deployment.resources.items() if value},
        "securityContext": security,
        # The usual place is in /dev, which may be the host's.
        "terminationMessagePath": "/tmp/termination-log",  # noqa: S108 (the container's own)
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "configurations", "mountPath": CONFIGURATIONS, "readOnly": True},
            *({"name": each.name, "mountPath": each.path, **({} if each.writable else _READ_ONLY)} for each in volumes),
            *([{"name": "instance", "mountPath": _INSTANCE}] if overlaps else []),
        ],
    }


def _probe(socket: str, page: str, period: int, failures: int) -> dict[str, Any]:
    """Over the plugin's own socket: whoever floods the HTTP port does not keep out the kubelet."""
    return {
        "exec": {"command": [*_PROBE, socket, page]},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 10,
    }


def _volumes(ground: CommonGround) -> Iterator[_Volume]:
    """Every directory at the same path as on the host, because the kubelet and the runtime are told of paths there."""
    device_plugins = ground.kubelet_device_plugin_dir
    yield _Volume("device-plugins", device_plugins, "Directory")
    # Below the kubelet's it writes in this folder alone.
    yield _Volume("sockets", posixpath.join(device_plugins, SOCKET_DIRECTORY), "DirectoryOrCreate", writable=True)
    if ground.registration == "plugins_registry":
        registry = posixpath.join(ground.kubelet_root_dir, "plugins_registry")
        yield _Volume("plugins-registry", registry, "Directory", writable=True)
    # Who holds what: a CDI spec stays while a pod holds its device.
    yield _Volume("pod-resources", posixpath.join(ground.kubelet_root_dir, "pod-resources"), "Directory")
    for number, path in enumerate(ground.static_cdi_dirs):
        yield _Volume("cdi-static-%d" % number if number else "cdi-static", path, "DirectoryOrCreate")
    # Specs of what it discovers, and of what it discovered once.
    yield _Volume("cdi-dynamic", ground.dynamic_cdi_dir, "DirectoryOrCreate", writable=True)
    for number, path in enumerate(ground.device_directories):
        # It looks at device nodes and opens none: the device cgroup would not let it. A node may be without a directory
        # that another one's devices are in, or lose it; nobody makes one in sysfs.
        is_the_kernels = path == "/dev" or path.startswith("/sys/")
        kind = "Directory" if is_the_kernels else "DirectoryOrCreate"
        yield _Volume("devices-%d" % number if number else "devices", path, kind)
