"""Restores fixed capacities that a restart of the kubelet has reset. Runs on the node, with its kubelet's credentials.

A kubelet may patch the status of its own node only (the Node authorizer and the admission plugin NodeRestriction).
Therefore the node needs no additional right, and the cluster needs no pod with such a right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..cluster import extended_resources, kubeconfig
from ..cluster.api import Api, ApiError, again_after_conflict
from .checkpoint import CheckpointError, read_registered


class RestoreError(Exception):
    """The capacities cannot be restored; the message is one sentence that names the file or the server."""


class Settings(NamedTuple):
    """The settings of a restore.

    kubeconfig: path of the kubelet's kubeconfig. node: the node's name. capacities: maps resources to numbers.
    kubelet_device_plugin_dir: the directory of the checkpoint, which lists the resources of device plugins.
    """

    kubeconfig: str
    node: str
    capacities: Mapping[str, int]
    kubelet_device_plugin_dir: str


def read_settings(path: str) -> Settings:
    """Read a JSON file with the keys of Settings. Raises RestoreError."""
    try:
        with open(path, encoding="utf-8") as file:
            data: Any = json.load(file)
        settings = Settings(**data)
        capacities = {str(name): int(number) for name, number in settings.capacities.items()}
    except OSError as error:
        raise RestoreError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise RestoreError(
            f"{path} is damaged: {error}: run site.yml, whose role extended_resources writes it"
        ) from error
    return settings._replace(capacities=capacities)


def restore(settings: Settings, dry_run: bool = False) -> dict[str, str]:
    """Patch the capacities that were reset. Returns the restored capacities by resource. Raises RestoreError.

    dry_run: the API server checks the patch, even if nothing was reset, and stores nothing.
    """
    try:
        # Read the kubeconfig each time, because a kubelet's certificate expires.
        cluster = Api(kubeconfig.read(settings.kubeconfig), dry_run)

        def change() -> dict[str, str]:
            operations, restored = extended_resources.restoration(
                cluster.node(settings.node), settings.capacities, _registered(settings.kubelet_device_plugin_dir)
            )
            if restored or dry_run:
                cluster.patch_node_status(settings.node, operations)
            return restored

        return again_after_conflict(change)
    except kubeconfig.KubeconfigError as error:
        raise RestoreError(f"the kubelet's kubeconfig {error}") from error
    except ApiError as error:
        user = f"as the kubelet of {settings.node}, with {settings.kubeconfig}"
        raise RestoreError(f"{user}: {error}") from error
    except (CheckpointError, extended_resources.CapacityConflict) as error:
        raise RestoreError(str(error)) from error


def _registered(directory: str) -> frozenset[str]:
    try:
        return frozenset(read_registered(directory))
    except OSError as error:
        raise RestoreError("{}: {}".format(os.path.join(directory, error.filename or ""), error.strerror)) from error
