"""Places a static pod that requests devices, and removes the pod."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from typing import Any

from ..support.new_file import replace

#: The name prefix of all pods for proofs, including pods that were created through the cluster.
PREFIX = "node-device-proof-"
NAMESPACE = "kube-system"
CONTAINER = "proof"


def is_no_device_free(words: str) -> bool:
    """Whether a kubelet refused a pod because no device was free or healthy.

    The messages are in kubernetes pkg/kubelet/cm/devicemanager/manager.go.
    """
    return "requested number of devices unavailable" in words or "no healthy devices present" in words


def new_name() -> str:
    """A random name, so that the kubelet never confuses two proofs."""
    return PREFIX + secrets.token_hex(4)


def manifest(name: str, image: str, resource: str, count: int) -> dict[str, Any]:
    """A pod with one container that requests ``count`` shares of ``resource`` and runs until its removal.

    The pod requests nothing else. To the kubelet, the pod is critical, and the kubelet would end other pods for further
    requests. The pod uses the host's network, because a new node may not have a pod network yet.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "node-device-proof"}},
        "spec": {
            "hostNetwork": True,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image,
                    "imagePullPolicy": "Never",
                    "resources": {"limits": {resource: str(count)}},
                }
            ],
        },
    }


class NotPlaced(Exception):
    """The manifest of a proof's pod cannot be written."""


class NotRemoved(Exception):
    """The manifest of a proof's pod cannot be removed, so the pod stays."""


@contextlib.contextmanager
def placed(directory: str, pod: dict[str, Any]) -> Iterator[None]:
    """Keep the pod's manifest in the kubelet's directory inside this block. Raises NotPlaced, NotRemoved.

    The manifest is written under a hidden name, which the kubelet ignores.
    """
    path = os.path.join(directory, pod["metadata"]["name"] + ".json")
    hidden = os.path.join(directory, "." + os.path.basename(path))
    try:
        try:
            replace(path, json.dumps(pod).encode(), hidden)
        except OSError as error:
            raise NotPlaced(f"cannot write the proof's static pod to {directory}: {error.strerror}") from error
        yield
    finally:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise NotRemoved(f"cannot remove {path}: {error.strerror}: remove it, or its pod stays") from error


def is_proof(pod: str) -> bool:
    """Whether this is the name of a proof's pod."""
    return pod.startswith(PREFIX)


def remove_leftovers(directory: str) -> list[str]:
    """Remove the manifests of killed proofs; returns the names of their pods, without the node's name.

    Raises OSError if a manifest cannot be removed.
    """
    names = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in sorted(os.scandir(directory), key=lambda each: each.name.lstrip(".")):
            name = entry.name.lstrip(".")
            if is_proof(name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
                names.append(os.path.splitext(name)[0])
    return names
