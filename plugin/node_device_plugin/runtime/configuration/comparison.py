"""Compares effective configurations. An edit may change only the wanted keys."""

from __future__ import annotations

from typing import Any

from .containerd_config import KEYS, cri_table, printed
from .containerd_imports import absolute


def unexpected_changes(before: str, after: str, *paths: str) -> list[str]:
    """Return the key paths in which two outputs of ``config dump`` differ, without the wanted keys.

    paths: of both root files. They are ignored among the imports, because ``config dump`` lists the root file there.
    """
    return differences(_normal(before, paths), _normal(after, paths))


def _normal(dump: str, paths: tuple[str, ...]) -> dict[str, Any]:
    data = printed(dump)
    # containerd 1.7 prints the imported files in random order. containerd 2 prints the names as in the file, such as
    # relative paths or patterns.
    data["imports"] = sorted(name for name in absolute(data, paths[0]) if name not in paths)
    table = cri_table(data)
    for key in KEYS:
        table.pop(key, None)
    return data


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the key paths in which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            difference
            for key in sorted({*before, *after})
            for difference in differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if before == after else [path]
