"""A static pod that asks for devices: placed, and taken away without a trace."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from typing import Any

#: What the names of all proofs begin with, of the cluster's pods too; a manifest with it is always ours.
PREFIX = "node-device-proof-"
NAMESPACE = "kube-system"
CONTAINER = "proof"


def is_no_device_free(words: str) -> bool:
    """Whether a kubelet refused a pod because no device was free or healthy at that moment: another pod took it, or
    the plugin restarted. Its words are those of kubernetes pkg/kubelet/cm/devicemanager/manager.go.
    """
    return "requested number of devices unavailable" in words or "no healthy devices present" in words


def new_name() -> str:
    """A name that no earlier proof had, so that the kubelet never takes one for the other."""
    return PREFIX + secrets.token_hex(4)


def manifest(name: str, image: str, resource: str, count: int) -> dict[str, Any]:
    """A pod with one container that asks for ``count`` shares of ``resource`` and stays until it is removed.

    It asks for nothing else: every static pod is critical to the kubelet, which ends other pods for what it lacks.
    The host's network spares it the pod network, which a new node may not have yet.
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
    """The manifest of a proof's pod cannot be removed: the pod stays."""


@contextlib.contextmanager
def placed(directory: str, pod: dict[str, Any]) -> Iterator[None]:
    """The pod's manifest is in the kubelet's directory inside this block.

    It appears at once (a rename from a name that the kubelet does not read). Raises NotPlaced, NotRemoved.
    """
    path = os.path.join(directory, pod["metadata"]["name"] + ".json")
    hidden = os.path.join(directory, "." + os.path.basename(path))
    try:
        try:
            with open(hidden, "w", encoding="utf-8") as file:
                json.dump(pod, file)
            os.rename(hidden, path)
        except OSError as error:
            said = (directory, error.strerror)
            raise NotPlaced("the proof's pod cannot be placed in {}: {}".format(*said)) from error
        yield
    finally:
        for leftover in (path, hidden):
            try:
                os.unlink(leftover)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise NotRemoved(f"remove {leftover}, or its pod stays: {error.strerror}") from error


def is_proof(pod: str) -> bool:
    """Whether a pod of this name is a proof's."""
    return pod.startswith(PREFIX)


def remove_leftovers(directory: str) -> list[str]:
    """Take away the manifests of proofs that were killed; the names of their pods, without the node's.

    OSError where one cannot be removed.
    """
    names = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in sorted(os.scandir(directory), key=lambda each: each.name.lstrip(".")):
            name = entry.name.lstrip(".")
            if is_proof(name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
                names.append(os.path.splitext(name)[0])
    return names
