"""Checks, on a node, that a DRA driver can use a kubeconfig there: its files, the API of the cluster, and the rights.

Ansible's preflight executes this on a node before a role writes anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..declaration.dra_api import API_VERSION
from ..declaration.fields import plain_characters
from ..declaration.model import DraDriver
from ..support import directory_names
from . import kubeconfig
from .api import Api, ApiError, NotFound, Place

_SLICES = Place("resourceslices", group=API_VERSION)


class Access(NamedTuple):
    """The access of a driver.

    problem: why the driver cannot use it, or None. paths: the files and directories that the driver reads.
    """

    problem: str | None
    paths: tuple[str, ...]


def look(driver: DraDriver, kubelet_root: str = "") -> Access:
    """The access of a driver with a kubeconfig. Asks the API server, and stores nothing there.

    kubelet_root: the kubelet's directory, which the sandbox hides.
    """
    try:
        files = kubeconfig.files(driver.kubeconfig)
        api = Api(kubeconfig.read(driver.kubeconfig, runs_programs=False), dry_run=True)
    except (ApiError, kubeconfig.KubeconfigError) as error:
        return Access(str(error), ())
    paths = tuple(sorted(shown(files)))
    unusable = [f"{path} {problem}" for path in paths if (problem := plain_characters(path))]
    unusable += [problem for file in files for problem in _hidden(file, kubelet_root)]
    return Access(next(iter(unusable), None) or _refusal(api, driver), paths)


def shown(files: Iterable[str]) -> set[str]:
    """The paths through which a sandbox must show files, so that it also shows what replaces a file.

    A program that renews credentials changes a link, such as the kubelet's kubelet-client-current.pem. Then the sandbox
    needs the directories of the link and of its target.
    """
    paths, directories = set(), set()
    for file in files:
        if os.path.islink(file):
            directories |= {os.path.dirname(file), os.path.dirname(os.path.realpath(file))}
        else:
            paths.add(file)
    return directories | {path for path in paths if os.path.dirname(path) not in directories}


def _hidden(file: str, kubelet_root: str) -> Iterator[str]:
    """Yield why the sandbox must not or cannot show a file."""
    is_link = os.path.islink(file)
    for directory in (os.path.dirname(file), os.path.dirname(os.path.realpath(file))):
        hides = directory_names.above(directory, directory_names.NEVER_SHOWN)
        if not hides and is_link and os.path.realpath(directory) in map(os.path.realpath, _private(kubelet_root)):
            hides = directory
        if hides:
            # The directories of a link and of its target have to be shown, so that a new target is visible.
            way = "move it, or name the link's target" if is_link else "move it to another directory"
            yield f"{file} needs {directory}, but the sandbox of the plugin's service hides {hides}: {way}"


def _private(kubelet_root: str) -> list[str]:
    return [*directory_names.HIDDEN, *filter(None, [kubelet_root])]


def _refusal(api: Api, driver: DraDriver) -> str | None:
    """Why the API server does not do what the driver needs, or None."""
    try:
        api.node(driver.node)
    except ApiError as error:
        return str(error)
    try:
        api.list(_SLICES, fieldSelector=f"spec.nodeName={driver.node},spec.driver={driver.name}")
        api.create(_SLICES, _trial(driver))
    except NotFound:
        return (
            f"the cluster does not serve {API_VERSION}: upgrade Kubernetes to 1.34 or later, or set api: device_plugin"
        )
    except ApiError as error:
        return str(error)
    return None


def _trial(driver: DraDriver) -> dict[str, object]:
    """A ResourceSlice without devices, for a dry run."""
    # The name of the node and more may be too long for a pool.
    pool = {"name": "trial", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"generateName": "nodedevices-trial-"},
        "spec": {"driver": driver.name, "nodeName": driver.node, "pool": pool, "devices": []},
    }
