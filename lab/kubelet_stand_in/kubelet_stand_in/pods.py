"""The stand-in's pods, read from manifests as a kubelet reads static pods."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .security import CONTAINER_FIELDS, POD_FIELDS, Security, parse_security


class ManifestError(ValueError):
    """A manifest is not a pod, or uses a feature that the stand-in does not support."""


class VolumeMount(NamedTuple):
    """A volume in a container. host_path: the mounted path."""

    host_path: str
    mount_path: str
    read_only: bool


class Container(NamedTuple):
    """A container of a pod. limits: counts of extended resources only."""

    name: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    working_dir: str
    env: tuple[tuple[str, str], ...]
    mounts: tuple[VolumeMount, ...]
    limits: dict[str, int]
    security: Security


class HostPath(NamedTuple):
    """A hostPath volume. type: empty for no check."""

    path: str
    type: str


class Pod(NamedTuple):
    """A pod. grace_period: seconds between SIGTERM and SIGKILL."""

    uid: str
    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    containers: tuple[Container, ...]
    volumes: tuple[HostPath, ...]
    host_network: bool
    host_pid: bool
    restart_policy: str
    grace_period: int

    @property
    def full_name(self) -> str:
        """The pod's name in the form namespace/name."""
        return "%s/%s" % (self.namespace, self.name)

    def requests(self) -> dict[str, int]:
        """Maps each extended resource to the sum of all containers' requests."""
        total: dict[str, int] = {}
        for container in self.containers:
            for resource, count in container.limits.items():
                total[resource] = total.get(resource, 0) + count
        return total


#: Fields that the stand-in ignores. Any other unknown field is an error.
_POD_SPEC = {"automountServiceAccountToken", "dnsPolicy", "enableServiceLinks", "priorityClassName", "tolerations"}
_POD_SPEC_USED = {
    "containers",
    "hostNetwork",
    "hostPID",
    "restartPolicy",
    "securityContext",
    "terminationGracePeriodSeconds",
    "volumes",
}
_CONTAINER = {
    "livenessProbe",
    "ports",
    "readinessProbe",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
}
_CONTAINER_USED = {
    "args",
    "command",
    "env",
    "image",
    "imagePullPolicy",
    "name",
    "resources",
    "securityContext",
    "volumeMounts",
    "workingDir",
}


def parse_pod(manifest: Any, source: str, node_name: str) -> Pod:
    """A static pod from its manifest. Raises ManifestError.

    source: path of the manifest. The pod's uid depends on path and content. The pod's name ends with the node's name.
    """
    try:
        if manifest["kind"] != "Pod" or manifest["apiVersion"] != "v1":
            raise ManifestError("the manifest is not a Pod of version v1")
        metadata, spec = manifest["metadata"], manifest["spec"]
        _only(spec, _POD_SPEC | _POD_SPEC_USED, "spec")
        volumes = {volume["name"]: _host_path(volume) for volume in spec.get("volumes") or ()}
        security = spec.get("securityContext") or {}
        _only(security, POD_FIELDS, "securityContext")
        # Fields of the pod that a variable may refer to.
        fields = {
            "metadata.name": "%s-%s" % (metadata["name"], node_name.lower()),
            "metadata.namespace": metadata.get("namespace") or "default",
            "spec.nodeName": node_name,
        }
        digest = hashlib.sha256(json.dumps([manifest, source, node_name], sort_keys=True).encode()).hexdigest()
        return Pod(
            uid=metadata.get("uid") or digest[:32],
            name=fields["metadata.name"],
            namespace=fields["metadata.namespace"],
            labels=dict(metadata.get("labels") or {}),
            annotations=dict(metadata.get("annotations") or {}),
            containers=tuple(_container(each, volumes, security, fields) for each in spec["containers"]),
            volumes=tuple(volumes.values()),
            host_network=bool(spec.get("hostNetwork")),
            host_pid=bool(spec.get("hostPID")),
            restart_policy=spec.get("restartPolicy") or "Always",
            grace_period=int(spec.get("terminationGracePeriodSeconds", 30)),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ManifestError("the manifest does not have the expected form: %r" % error) from error


def _container(
    data: Mapping[str, Any], volumes: Mapping[str, HostPath], of_pod: Mapping[str, Any], fields: Mapping[str, str]
) -> Container:
    _only(data, _CONTAINER | _CONTAINER_USED, "container")
    if data.get("imagePullPolicy", "IfNotPresent") == "Always":
        raise ManifestError("imagePullPolicy: the stand-in does not support Always, because it never pulls images")
    security = data.get("securityContext") or {}
    _only(security, CONTAINER_FIELDS, "securityContext")
    env = tuple((variable["name"], _value(variable, fields)) for variable in data.get("env") or ())
    return Container(
        name=data["name"],
        image=data["image"],
        command=tuple(data.get("command") or ()),
        args=tuple(data.get("args") or ()),
        working_dir=data.get("workingDir") or "",
        env=env,
        mounts=tuple(
            VolumeMount(volumes[mount["name"]].path, mount["mountPath"], bool(mount.get("readOnly")))
            for mount in data.get("volumeMounts") or ()
        ),
        limits=_extended_limits(data.get("resources") or {}),
        security=parse_security(of_pod, security),
    )


def _value(variable: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    _only(variable, {"name", "value", "valueFrom"}, "env")
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    path = str((source.get("fieldRef") or {}).get("fieldPath") or "")
    if path not in fields:
        raise ManifestError("env: the stand-in does not support valueFrom with %s" % (path or ", ".join(source)))
    return fields[path]


def _extended_limits(resources: Mapping[str, Any]) -> dict[str, int]:
    limits = {name: int(count) for name, count in (resources.get("limits") or {}).items() if "/" in name}
    for name, count in (resources.get("requests") or {}).items():
        if "/" in name and limits.get(name) != int(count):
            raise ManifestError("requests of %s must be equal to its limits" % name)
    return limits


def _host_path(volume: Mapping[str, Any]) -> HostPath:
    _only(volume, {"name", "hostPath"}, "volume")
    return HostPath(volume["hostPath"]["path"], volume["hostPath"].get("type") or "")


def _only(data: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(data) - known)
    if unknown:
        raise ManifestError("%s has %s, which the stand-in does not support" % (where, ", ".join(unknown)))
