# SPDX-License-Identifier: Apache-2.0
"""Where containerd has CDI's keys, and what it makes of them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from .cdi import Cdi

ENABLE = "enable_cdi"
DIRS = "cdi_spec_dirs"
KEYS = (ENABLE, DIRS)
#: The plugin whose table holds the two keys, by the version of the configuration file.
TABLES = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime", 4: "io.containerd.cri.v1.runtime"}


def effective(dump: str) -> Cdi:
    """What the output of ``containerd config dump`` says."""
    table = cri_table(tomllib.loads(dump))
    return Cdi(bool(table.get(ENABLE, False)), tuple(table.get(DIRS) or ()))


def wanted_keys(cdi: Cdi) -> dict[str, Any]:
    """The keys that make CDI effective: only those that lack, as enable_cdi is deprecated since 2.2."""
    wanted: dict[str, Any] = {}
    if not cdi.enabled:
        wanted[ENABLE] = True
    if cdi.missing_dirs:
        wanted[DIRS] = cdi.wanted_dirs
    return wanted


def cri_table(data: Mapping[str, Any]) -> dict[str, Any]:
    """The table that holds CDI's keys; empty where there is none."""
    plugins = data.get("plugins") or {}
    # containerd 2 has both: the one that holds CDI's keys is the newer.
    for name in ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"):
        if name in plugins:
            return plugins[name]
    return {}
