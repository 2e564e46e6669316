# SPDX-License-Identifier: Apache-2.0
"""Where containerd has CDI's keys, and what it makes of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple

from .cdi import SPEC_DIRS, Cdi, UnsupportedConfig

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
#: From here on there is no enable_cdi: CDI is always on, and a key that is left over changes nothing.
_ALWAYS_ON = (2, 4, 0)
# What 1.7 prints as it is, and TOML has escaped.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def always_on(version: str | None) -> bool:
    """Whether nothing turns CDI off in a containerd of this version."""
    return version is not None and version_tuple(version) >= _ALWAYS_ON


def effective(dump: str) -> Cdi:
    """What the output of ``containerd config dump`` says."""
    data = printed(dump)
    table = cri_table(data)
    # containerd 2.0 to 2.3 turn CDI on by default; from 2.4 on the key does not exist.
    newer = table_of(data, TABLES[3]) is table
    return Cdi(bool(table.get(ENABLE, newer)), tuple(table.get(DIRS, SPEC_DIRS if newer else ()) or ()))


def printed(dump: str) -> dict[str, Any]:
    """The output of ``containerd config dump`` as data. Raises UnsupportedConfig where it is no TOML."""
    try:
        return tomllib.loads(dump)
    except tomllib.TOMLDecodeError:
        pass
    try:
        return tomllib.loads(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", dump))
    except tomllib.TOMLDecodeError as error:
        raise UnsupportedConfig(f"what `containerd config dump` prints is not valid TOML ({error})") from error


def texts_in(data: Mapping[str, Any], key: str) -> list[str]:
    """A list of texts; what is none is left out, and containerd's to refuse."""
    value = data.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def last_version(files: Iterable[Mapping[str, Any]]) -> Any:
    """By which version containerd before 2.0 reads all files: the last one that any says; None where none does.

    files: as data, in the order in which they are read.
    """
    return next((version for data in reversed(list(files)) if (version := data.get("version"))), None)


def wanted_keys(cdi: Cdi) -> dict[str, Any]:
    """The keys that make CDI effective: only those that lack, as enable_cdi is deprecated since 2.2."""
    wanted: dict[str, Any] = {}
    if not cdi.enabled:
        wanted[ENABLE] = True
    if cdi.missing_dirs:
        wanted[DIRS] = cdi.wanted_dirs
    return wanted


def table_of(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A plugin's table."""
    return table_at(data, "plugins", name)


def table_at(data: Any, *names: str) -> dict[str, Any]:
    """The table below these names; empty where there is none, or something else in its place."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def cri_table(data: Mapping[str, Any]) -> dict[str, Any]:
    """The table that holds CDI's keys; empty where there is none."""
    # containerd 2 has both: the one that holds CDI's keys is the newer.
    return next((table for name in (TABLES[3], TABLES[2], TABLES[1]) if (table := table_of(data, name))), {})
