# SPDX-License-Identifier: Apache-2.0
"""Finds the CDI keys in containerd's configuration, and reads them as containerd does."""

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
#: Version of the configuration file to the plugin whose table holds the two keys.
TABLES = {
    1: "cri",
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}
#: From this version on, enable_cdi does not exist: CDI is always on, and an old key has no effect.
_ALWAYS_ON = (2, 4, 0)
# Control characters, which containerd 1.7 prints raw although TOML requires escapes.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def always_on(version: str | None) -> bool:
    """Return whether CDI cannot be turned off in this version of containerd."""
    return version is not None and version_tuple(version) >= _ALWAYS_ON


def effective(dump: str) -> Cdi:
    """Return the CDI settings in the output of ``containerd config dump``."""
    data = printed(dump)
    table = cri_table(data)
    # containerd 2.0 to 2.3 turn CDI on by default; from 2.4 on the key does not exist.
    newer = table_of(data, TABLES[3]) is table
    return Cdi(bool(table.get(ENABLE, newer)), tuple(table.get(DIRS, SPEC_DIRS if newer else ()) or ()))


def printed(dump: str) -> dict[str, Any]:
    """Return the output of ``containerd config dump`` as data.

    Raises UnsupportedConfig if it is not valid TOML.
    """
    try:
        return tomllib.loads(dump)
    except tomllib.TOMLDecodeError:
        pass
    try:
        return tomllib.loads(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", dump))
    except tomllib.TOMLDecodeError as error:
        raise UnsupportedConfig(f"the output of `containerd config dump` is not valid TOML ({error})") from error


def texts_in(data: Mapping[str, Any], key: str) -> list[str]:
    """Return the strings in a list. Other values do not count: containerd refuses them."""
    value = data.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def last_version(files: Iterable[Mapping[str, Any]]) -> Any:
    """Return the last version that any file sets, or None.

    containerd before 2.0 reads all files by this version. files: as data, in reading order.
    """
    return next((version for data in reversed(list(files)) if (version := data.get("version"))), None)


def wanted_keys(cdi: Cdi) -> dict[str, Any]:
    """Return only the keys that CDI still needs, because enable_cdi is deprecated since 2.2."""
    wanted: dict[str, Any] = {}
    if not cdi.enabled:
        wanted[ENABLE] = True
    if cdi.missing_dirs:
        wanted[DIRS] = cdi.wanted_dirs
    return wanted


def table_of(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the table of a plugin."""
    return table_at(data, "plugins", name)


def table_at(data: Any, *names: str) -> dict[str, Any]:
    """Return the table at a key path; empty if there is no table."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def cri_table(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table that holds CDI's keys; empty if there is none."""
    # containerd 2 has two CRI tables, of which the newer one holds CDI's keys.
    return next((table for name in (TABLES[3], TABLES[2], TABLES[1]) if (table := table_of(data, name))), {})
