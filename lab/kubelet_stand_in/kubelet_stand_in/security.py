"""The part of Kubernetes' security contexts that the stand-in supports.

Follows pkg/kubelet/kuberuntime/security_context.go and pkg/securitycontext of Kubernetes 1.36. A container's fields
override its pod's fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from node_device_plugin.wire import cri_v1_pb2 as cri

_SECCOMP = {
    "RuntimeDefault": cri.SecurityProfile.RuntimeDefault,
    "Unconfined": cri.SecurityProfile.Unconfined,
}
#: Supported fields of a pod, and of a container.
POD_FIELDS = {"runAsGroup", "runAsUser", "seccompProfile"}
CONTAINER_FIELDS = POD_FIELDS | {
    "allowPrivilegeEscalation",
    "capabilities",
    "privileged",
    "readOnlyRootFilesystem",
}


class Security(NamedTuple):
    """A container's privileges."""

    privileged: bool
    run_as_user: int | None
    run_as_group: int | None
    seccomp: cri.SecurityProfile
    may_escalate: bool
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    read_only_root: bool


def parse_security(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Security:
    """Merge both securityContexts. Raises KeyError for an unsupported seccomp profile."""
    both = {**pod, **container}
    # Without a profile, a kubelet uses Unconfined, unless its seccompDefault is on.
    seccomp = both["seccompProfile"]["type"] if both.get("seccompProfile") else "Unconfined"
    capabilities = both.get("capabilities") or {}
    return Security(
        privileged=bool(both.get("privileged")),
        run_as_user=both.get("runAsUser"),
        run_as_group=both.get("runAsGroup"),
        seccomp=cri.SecurityProfile(profile_type=_SECCOMP[seccomp]),
        may_escalate=both.get("allowPrivilegeEscalation") is not False,
        added=tuple(capabilities.get("add") or ()),
        dropped=tuple(capabilities.get("drop") or ()),
        read_only_root=bool(both.get("readOnlyRootFilesystem")),
    )


def container_context(security: Security, namespaces: cri.NamespaceOption) -> cri.LinuxContainerSecurityContext:
    """The security context for the runtime's request."""
    context = cri.LinuxContainerSecurityContext(
        namespace_options=namespaces,
        privileged=security.privileged,
        capabilities=cri.Capability(add_capabilities=security.added, drop_capabilities=security.dropped),
        readonly_rootfs=security.read_only_root,
        no_new_privs=not security.may_escalate,
        seccomp=security.seccomp,
    )
    if security.run_as_user is not None:
        context.run_as_user.value = security.run_as_user
    if security.run_as_group is not None:
        context.run_as_group.value = security.run_as_group
    return context
