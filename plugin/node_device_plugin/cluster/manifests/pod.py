"""The plugin's pod: runs as root without capabilities, and sees only the host directories that the plugin needs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...support.sockets import INSTANCE, INSTANCE_SOCKET, OVERLAP, SOCKET_DIRECTORY, instance_file, status_socket
from ..node_readiness import Taint
from . import grants, node_access
from .deployment import Deployment
from .nodes import CONFIGURATIONS, DEFAULT, CommonGround

#: The probe's command in the image. The CLI's imports would be too slow to run every few seconds.
_PROBE = ("/opt/node-device-plugin/bin/python", "-I", "-m", "node_device_plugin.status_api.probe")
_PORT = "http"
#: Makes a mount read-only, and its submounts if node and runtime support that (Kubernetes 1.31, containerd 2.0, Linux
#: 5.12).
_READ_ONLY = {"readOnly": True, "recursiveReadOnly": "IfPossible"}
#: The container's name.
CONTAINER = "plugin"
#: The ServiceAccount of pods without rights, which is in every namespace. Without a name, an apply would keep a former
#: account: the API server keeps a second field with its name (serviceAccount).
DEFAULT_ACCOUNT = "default"
_DEFAULT_OPTION = "--default-config"
#: The plugin reads the file with the name of its node, or else the default.
_READS = ("--config", CONFIGURATIONS + "/$(NODE_NAME)", _DEFAULT_OPTION, f"{CONFIGURATIONS}/{DEFAULT}")

#: The pod's own directory for the status socket. Another instance may use the host's directory at the same time.
_INSTANCE = "/node-device-plugin"


class _Volume(NamedTuple):
    """A directory of the host. kind: the hostPath type, which decides what happens if it is missing."""

    name: str
    path: str
    kind: str
    writable: bool = False


def pods_overlap(spec: Mapping[str, Any]) -> bool:
    """Whether a pod of this spec may serve at the same time as another instance."""
    return any(env.get("name") == OVERLAP for each in spec["containers"] for env in each.get("env") or ())


def reads_default(spec: Mapping[str, Any]) -> bool:
    """Whether a pod of this spec reads the default on a node without a file; pods of earlier releases do not."""
    return any(_DEFAULT_OPTION in (each.get("args") or ()) for each in spec["containers"])


def pod_spec(
    deployment: Deployment, ground: CommonGround, affinity: Mapping[str, Any], overlap: str = ""
) -> dict[str, Any]:
    """The spec of a pod. affinity: the part of the pod spec that selects its nodes.

    overlap: whether the pod may serve at the same time as another instance: a value of the variable OVERLAP, or empty.
    """
    has_token = _has_token(deployment, ground)
    # Mount a path only once: the first volume wins, so a directory that is only scanned comes last.
    volumes: list[_Volume] = []
    for volume in _volumes(ground):
        if volume.path not in {other.path for other in volumes}:
            volumes.append(volume)
    spec: dict[str, Any] = {
        **affinity,
        # The plugin calls only its kubelet, over sockets. If it also calls the API server, it mounts a token itself.
        "automountServiceAccountToken": False,
        "serviceAccountName": deployment.name if has_token else DEFAULT_ACCOUNT,
        "enableServiceLinks": False,
        # The plugin resolves no names.
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 10,
        "tolerations": _tolerations(deployment),
        "securityContext": {
            # Root owns the kubelet's sockets. Without capabilities, file permissions apply to root.
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(deployment, ground, volumes, overlap)],
        "volumes": [
            {"name": "configurations", "configMap": {"name": deployment.name}},
            *({"name": each.name, "hostPath": {"path": each.path, "type": each.kind}} for each in volumes),
            *([{"name": "instance", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}] if overlap else []),
            *([grants.volume()] if has_token else []),
        ],
    }
    if deployment.priority_class:
        spec["priorityClassName"] = deployment.priority_class
    if deployment.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in deployment.image_pull_secrets]
    return spec


def _has_token(deployment: Deployment, ground: CommonGround) -> bool:
    """Whether the pods call the API server: about their node object, or as a DRA driver."""
    return deployment.tells_node or bool(ground.drivers)


def _tolerations(deployment: Deployment) -> list[dict[str, str]]:
    """The deployment's tolerations, and one for the startup taint, which the pod has to remove."""
    found = [dict(each) for each in deployment.tolerations]
    if deployment.startup_taint and {"operator": "Exists"} not in found:
        taint = Taint.of(deployment.startup_taint)
        found.append({"key": taint.key, "operator": "Exists", "effect": taint.effect})
    return found


def _container(deployment: Deployment, ground: CommonGround, volumes: list[_Volume], overlap: str) -> dict[str, Any]:
    device_plugins = ground.settings.kubelet_device_plugin_dir
    socket = _INSTANCE + "/status.sock" if overlap else status_socket(device_plugins)
    asked = (socket, instance_file(device_plugins))
    # On the node, the name tells which DaemonSet serves.
    name = f"DaemonSet {deployment.namespace}/{deployment.name}"
    environment: list[dict[str, Any]] = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": INSTANCE, "value": name},
    ]
    if overlap:
        environment += [{"name": OVERLAP, "value": overlap}, {"name": INSTANCE_SOCKET, "value": socket}]
    security: dict[str, Any] = {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    if deployment.selinux_type is not None:
        # Set the type for the container only, because the pod's pause container needs no access to the kubelet.
        security["seLinuxOptions"] = {"type": deployment.selinux_type}
    return {
        "name": CONTAINER,
        "image": deployment.image,
        "imagePullPolicy": deployment.image_pull_policy,
        "args": ["run", *_READS, *node_access.options(deployment)],
        "env": environment,
        "ports": [{"name": _PORT, "containerPort": ground.port}],
        # The plugin may first wait for another instance to end. The startup probe delays the other probes until then.
        "startupProbe": _probe(asked, "/healthz", period=1, failures=600),
        "livenessProbe": _probe(asked, "/healthz", period=10, failures=3),
        "readinessProbe": _probe(asked, "/readyz", period=5, failures=1),
        "resources": {key: dict(value) for key, value in deployment.resources.items() if value},
        "securityContext": security,
        # The default path is in /dev, which may be a mount of the host's /dev.
        "terminationMessagePath": "/tmp/termination-log",  # noqa: S108 (the container's own)
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            # The whole ConfigMap, because a subPath mount is never updated while the pod runs.
            {"name": "configurations", "mountPath": CONFIGURATIONS, "readOnly": True},
            *({"name": each.name, "mountPath": each.path, **({} if each.writable else _READ_ONLY)} for each in volumes),
            *([{"name": "instance", "mountPath": _INSTANCE}] if overlap else []),
            *([grants.mount()] if _has_token(deployment, ground) else []),
        ],
    }


def _probe(asked: tuple[str, str], page: str, period: int, failures: int) -> dict[str, Any]:
    """A probe over the plugin's own socket, which clients that flood the HTTP port cannot block.

    asked: the paths of the socket, and of the file with the name of the instance that serves.
    """
    socket, instance = asked
    return {
        "exec": {"command": [*_PROBE, socket, page, instance]},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 10,
    }


def _volumes(ground: CommonGround) -> Iterator[_Volume]:
    """The host's directories. The paths in the pod are the same, because the kubelet and the runtime receive them."""
    settings, device_plugins = ground.settings, ground.settings.kubelet_device_plugin_dir
    yield _Volume("device-plugins", device_plugins, "Directory")
    # The plugin writes only in this subdirectory of the kubelet's directory.
    yield _Volume("sockets", posixpath.join(device_plugins, SOCKET_DIRECTORY), "DirectoryOrCreate", writable=True)
    if settings.registration == "plugins_registry" or ground.drivers:
        registry = posixpath.join(settings.kubelet_root_dir, "plugins_registry")
        yield _Volume("plugins-registry", registry, "Directory", writable=True)
    # The plugin asks here which pods hold devices, because it keeps the CDI spec of a held device.
    yield _Volume("pod-resources", posixpath.join(settings.kubelet_root_dir, "pod-resources"), "Directory")
    for number, path in enumerate(path for path in settings.cdi_spec_dirs if path != settings.dynamic_cdi_dir):
        yield _Volume("cdi-static-%d" % number if number else "cdi-static", path, "DirectoryOrCreate")
    # The plugin writes the CDI specs of discovered devices here.
    yield _Volume("cdi-dynamic", settings.dynamic_cdi_dir, "DirectoryOrCreate", writable=True)
    for number, path in enumerate(ground.device_directories):
        # A node may not have the directory, so the kubelet creates it. In /dev and /sys, nobody can create a directory.
        is_the_kernels = path == "/dev" or path.startswith("/sys/")
        kind = "Directory" if is_the_kernels else "DirectoryOrCreate"
        yield _Volume("devices-%d" % number if number else "devices", path, kind)
