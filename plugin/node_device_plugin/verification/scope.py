"""What a verification is given: its node, the scope of its proofs, and the node's runtime."""

from __future__ import annotations

from typing import NamedTuple


class Scope(NamedTuple):
    """The paths and settings of this node, and the scope of the proofs.

    static_pod_dir: empty if the kubelet runs no static pods; None if the caller does not know. image: None for the
    runtime's sandbox image. devices: ``one`` free share of each resource, or ``all`` free shares.
    unproven_only: skip a resource if the file ``record`` lists its current state as proven.
    timeout: seconds until the kubelet's lists must match the declaration, and again for each proof to run and to end.
    kubelet_kubeconfig, max_pods: see SlotCounter. makes_static_pods: whether proofs may create static pods; leftovers
    of killed proofs are removed in any case. plugin: text for the record that identifies the plugin. proof_pods: pods
    (namespace/name) that were created for the proof; if given, only their containers are inspected. invocation: see
    restarts; None to not check it.
    """

    runtime_socket: str
    kubelet_root: str
    static_pod_dir: str | None
    image: str | None
    devices: str
    unproven_only: bool
    record: str | None
    timeout: float
    kubelet_kubeconfig: str | None = None
    max_pods: int | None = None
    makes_static_pods: bool = True
    plugin: str = ""
    proof_pods: tuple[str, ...] = ()
    invocation: str | None = None


class Runtime(NamedTuple):
    """The runtime's name and version, the image for proofs, and whether the runtime injects CDI devices.

    image: None if the node has no image; ``no_image`` is then the reason.
    """

    name: str
    image: str | None
    gives_cdi: bool
    no_image: str = ""
