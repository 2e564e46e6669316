# SPDX-License-Identifier: Apache-2.0
"""Converges an owner's files on a node. If the play's preflight shows that all files are right, no module runs.

Otherwise the module managed_files runs, and reads the files again before it writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from . import preflight

_UNCHANGED: dict[str, Any] = {"changed": False, "written": [], "contents": [], "removed": [], "kept": [], "diff": []}
_MODES, _PRIVATE = {"file": 0o644, "directory": 0o755}, 0o700


def converge(look: preflight.Preflight, node: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Create, update and remove an owner's files.

    node: result of the play's or action's preflight, or None. arguments: of the module managed_files.
    """
    planned = node is not None and not arguments.get("pending")
    if planned and in_place(node or {}, arguments["owner"], arguments.get("files") or ()) and not look.has_written:
        return dict(_UNCHANGED)
    return look.execute("managed_files", arguments)


def in_place(node: Mapping[str, Any], owner: str, files: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an owner's files on the node are exactly the wanted files."""
    if owner not in node.get("settled", ()):
        return False
    ledger = node["ledger"]
    own = {path for path, entry in ledger.items() if entry.get("owner") == owner}
    directories = {path for path, entry in ledger.items() if owner in entry.get("owners", ())}
    paths = [file["path"] for file in files]
    return (
        own == {file["path"] for file in files if file.get("type", "file") != "directory"}
        and all(_is_entered(ledger.get(file["path"]), file) for file in files)
        and all(any(f"{path}/".startswith(f"{directory}/") for path in paths) for directory in directories)
    )


def _is_entered(entry: Mapping[str, Any] | None, file: Mapping[str, Any]) -> bool:
    """Return whether the ledger's entry matches the wanted file."""
    kind = file.get("type", "file")
    if entry is None or entry["kind"] != kind:
        return False
    content_is_right = kind == "directory" or entry["sha256"] == hashlib.sha256(file["content"].encode()).hexdigest()
    return content_is_right and entry.get("mode") == (_PRIVATE if file.get("private") else _MODES[kind])
