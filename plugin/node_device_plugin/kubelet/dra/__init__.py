"""The kubelet's API for drivers of Dynamic Resource Allocation (DRA): one driver for all resources of a node.

A plugin without such a resource loads none of the other modules here, which take memory.
"""

from __future__ import annotations

import os

from ...declaration import Configuration

#: The directory of the records of prepared claims, in the directory of the plugin's CDI specs.
RECORDS = "node-device-plugin-claims"


def is_needed(configuration: Configuration) -> bool:
    """Whether a resource is served through DRA, or a claim may still have devices, which only a driver can release."""
    return configuration.uses_dra or os.path.isdir(os.path.join(configuration.dynamic_cdi_dir, RECORDS))
