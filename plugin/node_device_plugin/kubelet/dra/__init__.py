"""The kubelet's API for drivers of Dynamic Resource Allocation (DRA): one driver for all resources of a node.

A plugin without such a resource loads none of the other modules here, which take memory.
"""

from __future__ import annotations

import contextlib
import os
import re

from ...declaration import Configuration, Problem
from ...declaration.model import DraDriver
from ...support import bounded_reads

#: The directory of the records of prepared claims, in the directory of the plugin's CDI specs.
RECORDS = "node-device-plugin-claims"
#: Matches a uid that can be a part of the names of files and CDI devices.
UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_ENDING = ".json"
#: Stands for the driver of a record that cannot be read.
UNKNOWN = ""


def of_this_node(driver: DraDriver) -> DraDriver:
    """The driver with its node's name and its access to the cluster.

    In a pod, whose configuration may be that of many nodes, the kubelet tells the name, and gives a service account.
    """
    name = os.environ.get("NODE_NAME")
    return driver._replace(node=driver.node or name, kubeconfig="") if name else driver


def is_needed(configuration: Configuration) -> bool:
    """Whether a resource is served through DRA, or a claim may still have devices, which only a driver can release."""
    try:
        return configuration.uses_dra or bool(record_paths(configuration.dynamic_cdi_dir))
    except OSError:
        return True


def record_path(directory: str, uid: str) -> str:
    """The path of a claim's record. directory: of the plugin's CDI specs."""
    return os.path.join(directory, RECORDS, uid + _ENDING)


def record_paths(directory: str) -> list[str]:
    """The paths of all records, sorted. Other files in their directory do not count. Raises OSError."""
    try:
        names = os.listdir(os.path.join(directory, RECORDS))
    except (FileNotFoundError, NotADirectoryError):
        return []
    uids = sorted(name[: -len(_ENDING)] for name in names if name.endswith(_ENDING))
    return [record_path(directory, uid) for uid in uids if UID.fullmatch(uid)]


def recorded_drivers(directory: str) -> set[str]:
    """The drivers for which claims are prepared, with UNKNOWN for what cannot be read. Blocks."""
    drivers = set()
    try:
        for path in record_paths(directory):
            # Another instance may have released the claim meanwhile.
            with contextlib.suppress(FileNotFoundError):
                drivers.add(str(bounded_reads.json_of(bounded_reads.read_file(path, follow=False))["driver"]))
    except (KeyError, OSError, TypeError, ValueError):
        drivers.add(UNKNOWN)
    return drivers


def change_problems(before: Configuration, after: Configuration) -> list[Problem]:
    """Why prepared claims forbid another configuration. Blocks.

    Only the driver that prepared a claim can release the claim, and it must find the claim's record.
    """
    problems, first = [], "end all pods with claims on this node first"
    directory, driver = before.dynamic_cdi_dir, after.dra.name
    if after.dynamic_cdi_dir != directory and recorded_drivers(directory):
        problems.append(Problem("dynamic_cdi_dir", f"claims are prepared, with records in {directory}: {first}"))
    if driver != before.dra.name and recorded_drivers(directory) - {driver}:
        problems.append(Problem("dra.driver", f"claims are prepared by the driver {before.dra.name}: {first}"))
    return problems
