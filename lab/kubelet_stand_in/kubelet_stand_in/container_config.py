"""Builds the CRI configuration of a pod's sandbox and of its containers.

Names, labels and paths follow pkg/kubelet/kuberuntime of Kubernetes 1.36. The configuration does not include cgroups,
/etc/hosts or the termination log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from node_device_plugin.wire import cri_v1_pb2 as cri

from . import klog
from .device_state import Held
from .pods import Container, Pod
from .security import container_context

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
RESTART_COUNT = "io.kubernetes.container.restartCount"

_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def sandbox_config(pod: Pod, logs: str, attempt: int) -> cri.PodSandboxConfig:
    """The configuration of a pod's sandbox. logs: directory of all pods' logs."""
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace, attempt=attempt),
        hostname="" if pod.host_network else pod.name,
        log_directory=log_directory(pod, logs),
        labels={**pod.labels, POD_NAME: pod.name, POD_NAMESPACE: pod.namespace, POD_UID: pod.uid},
        annotations=pod.annotations,
        linux=cri.LinuxPodSandboxConfig(
            security_context=cri.LinuxSandboxSecurityContext(
                namespace_options=_namespaces(pod), privileged=any(c.security.privileged for c in pod.containers)
            )
        ),
    )


def container_config(pod: Pod, container: Container, held: Mapping[str, Held], attempt: int) -> cri.ContainerConfig:
    """The configuration of a container, including Allocate's answers. held: the container's devices by resource."""
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=container.name, attempt=attempt),
        image=cri.ImageSpec(image=container.image),
        working_dir=container.working_dir,
        labels={
            POD_NAME: pod.name,
            POD_NAMESPACE: pod.namespace,
            POD_UID: pod.uid,
            CONTAINER_NAME: container.name,
        },
        log_path="%s/%d.log" % (container.name, attempt),
        linux=cri.LinuxContainerConfig(security_context=container_context(container.security, _namespaces(pod))),
    )
    _add_devices(config, held)
    variables = {variable.key: variable.value.decode() for variable in config.envs}
    for name, value in container.env:
        variables[name] = _expand(value, variables)
        config.envs.add(key=name, value=variables[name].encode())
    config.command.extend(_expand(word, variables) for word in container.command)
    config.args.extend(_expand(word, variables) for word in container.args)
    for mount in container.mounts:
        config.mounts.add(container_path=mount.mount_path, host_path=mount.host_path, readonly=mount.read_only)
    config.annotations[RESTART_COUNT] = str(attempt)
    return config


def log_directory(pod: Pod, logs: str) -> str:
    """The directory of a pod's logs, with one directory for each container."""
    return os.path.join(logs, "%s_%s_%s" % (pod.namespace, pod.name, pod.uid))


def _add_devices(config: cri.ContainerConfig, held: Mapping[str, Held]) -> None:
    """Merge the plugins' answers. The first value of a key stays. A conflicting variable is only logged."""
    env: dict[str, str] = {}
    names: list[str] = []
    for resource in held.values():
        response = resource.response
        for key, value in response.envs.items():
            if env.setdefault(key, value) != value:
                klog.error("Environment variable has conflicting setting", None, envKey=key, expected=value)
        for device in response.devices:
            if device.container_path not in {known.container_path for known in config.devices}:
                config.devices.add(
                    container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
                )
        for mount in response.mounts:
            if mount.container_path not in {known.container_path for known in config.mounts}:
                config.mounts.add(
                    container_path=mount.container_path, host_path=mount.host_path, readonly=mount.read_only
                )
        for key, value in response.annotations.items():
            if key not in config.annotations:
                config.annotations[key] = value
        names += [device.name for device in response.cdi_devices if device.name not in names]
    for key, value in env.items():
        config.envs.add(key=key, value=value.encode())
    for name in names:
        config.CDI_devices.add(name=name)


def _namespaces(pod: Pod) -> cri.NamespaceOption:
    return cri.NamespaceOption(
        network=cri.NODE if pod.host_network else cri.POD,
        pid=cri.NODE if pod.host_pid else cri.CONTAINER,
        ipc=cri.POD,
    )


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand Kubernetes' $(NAME). $$ becomes a dollar sign, and unknown names stay unchanged."""
    return _VARIABLE.sub(
        lambda match: "$" if match.group() == "$$" else variables.get(match.group(1), match.group()), text
    )
