"""Finds and reads the CDI keys in containerd's configuration, by containerd's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...support.toml import TomlError, document
from .cdi import SPEC_DIRS, Cdi, UnsupportedConfig

ENABLE = "enable_cdi"
DIRS = "cdi_spec_dirs"
KEYS = (ENABLE, DIRS)
#: Maps the configuration file's version to the plugin whose table has the two keys.
TABLES = {
    1: "cri",
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}
# Matches control characters. containerd 1.7 prints them without the escapes that TOML requires.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")


def effective(dump: str) -> Cdi:
    """Return the CDI settings in the output of ``containerd config dump``."""
    data = printed(dump)
    table = cri_table(data)
    # In containerd 2.0 to 2.3, CDI is on by default. From 2.4 on, the key does not exist.
    newer = table_of(data, TABLES[3]) is table
    return Cdi(bool(table.get(ENABLE, newer)), tuple(table.get(DIRS, SPEC_DIRS if newer else ()) or ()))


def printed(dump: str) -> dict[str, Any]:
    """Return the output of ``containerd config dump`` as data, see ``document``. Raises UnsupportedConfig."""
    try:
        return document(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", dump))
    except TomlError as error:
        raise UnsupportedConfig(f"the output of `containerd config dump` is not valid TOML ({error})") from error


def texts_in(data: Mapping[str, Any], key: str) -> list[str]:
    """Return the strings in a list. Ignores other values, which containerd rejects."""
    value = data.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def last_version(files: Iterable[Mapping[str, Any]]) -> Any:
    """Return the last version in the files, by which containerd before 2.0 reads all files; None without a version.

    files: as data, in containerd's order.
    """
    return next((version for data in reversed(list(files)) if (version := data.get("version"))), None)


def wanted_keys(cdi: Cdi) -> dict[str, Any]:
    """Return only the keys that CDI still needs. (enable_cdi is deprecated since 2.2.)"""
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
    """Return the table with CDI's keys; empty if there is no CRI table."""
    # containerd 2 has two CRI tables. The newer table has CDI's keys.
    return next((table for name in (TABLES[3], TABLES[2], TABLES[1]) if (table := table_of(data, name))), {})
