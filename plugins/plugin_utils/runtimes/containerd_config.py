# SPDX-License-Identifier: Apache-2.0
"""Where containerd has CDI's keys, and what it makes of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from .cdi import Cdi, Refusal

ENABLE = "enable_cdi"
DIRS = "cdi_spec_dirs"
KEYS = (ENABLE, DIRS)
#: The plugin whose table holds the two keys, by the version of the configuration file.
TABLES = {
    1: "cri",
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}
# What 1.7 prints as it is, and TOML has escaped.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def effective(dump: str) -> Cdi:
    """What the output of ``containerd config dump`` says."""
    table = cri_table(printed(dump))
    return Cdi(bool(table.get(ENABLE, False)), tuple(table.get(DIRS) or ()))


def printed(dump: str) -> dict[str, Any]:
    """The output of ``containerd config dump`` as data. Raises Refusal where it is no TOML."""
    try:
        return tomllib.loads(dump)
    except tomllib.TOMLDecodeError:
        pass
    try:
        return tomllib.loads(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", dump))
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"what `containerd config dump` prints is not valid TOML ({error})") from error


def texts_in(data: Mapping[str, Any], key: str) -> list[str]:
    """A list of texts; what is none is left out, and containerd's to refuse."""
    value = data.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


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
    plugins = data.get("plugins")
    # containerd 2 has both: the one that holds CDI's keys is the newer.
    for name in (TABLES[3], TABLES[2], TABLES[1]):
        if isinstance(plugins, dict) and isinstance(plugins.get(name), dict):
            return plugins[name]
    return {}
