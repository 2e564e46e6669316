# SPDX-License-Identifier: Apache-2.0
"""Writes a role's files and directories, and removes the role's other files.

Runs on nodes: Python 3.9. For a file with ``configuration``, the caller has loaded the plugin's code.
"""

from __future__ import annotations

import os
import shlex

from .. import boot_unit, node_code
from ..account_numbers import with_numbers
from ..ledger import LedgerConflict

_FILE = {
    "path": {"type": "path", "required": True},
    "type": {"type": "str", "choices": ["file", "directory"], "default": "file"},
    "private": {"type": "bool", "default": False},
    "content": {"type": "str"},
    "configuration": {"type": "dict"},
    "validate": {"type": "str"},
}
PARAMS = {
    "owner": {"type": "str", "required": True},
    "files": {"type": "list", "elements": "dict", "default": [], "options": _FILE},
    "code": node_code.ARGUMENT,
}


def converge(node, params):
    """Converge the files of ``owner`` to ``files``."""

    def validate(item, staged):
        if not item["validate"]:
            return
        command = [word.replace("%s", staged) for word in shlex.split(item["validate"])]
        code, output, error = node.run_command(command)
        if code:
            said = (error.strip() or output.strip() or "exit code %d" % code).replace(staged, item["path"])
            raise LedgerConflict("{} would not be valid, so nothing was written: {}".format(item["path"], said))

    wanted = [item_of(file, node.facts) for file in params["files"]]
    with node.ledger() as ledger:
        report = node.managed(ledger, params["owner"]).converge(wanted, validate)
    # A unit whose file is gone stays in systemd's memory.
    if not node.check_mode and any(os.path.dirname(path) == boot_unit.UNITS for path in report.removed):
        node.run_command(["systemctl", "daemon-reload"], check_rc=True)
    return node.answer(report)


def item_of(file, facts):
    """Return an element of ``files`` as a wanted item of Managed. facts: of a `Node`. Raises LedgerConflict."""
    path, kind = file["path"], file["type"]
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise LedgerConflict(f"{path}: must be an absolute path in its shortest form")
    if kind == "directory":
        return {"path": path, "kind": kind, "mode": 0o700 if file.get("private") else 0o755}
    content = file["content"] if file["configuration"] is None else _text(path, file["configuration"], facts)
    if content is None:
        raise LedgerConflict(f"{path}: content is required for a file")
    return {"path": path, "kind": kind, "mode": 0o644, "content": content.encode(), "validate": file["validate"]}


def _text(path, configuration, facts):
    """Return the text of the plugin's configuration file, with the node's numbers of users and groups."""
    from node_device_plugin.declaration import configuration_file, serialise

    numbered, unknown = with_numbers(configuration, facts)
    if unknown:
        raise LedgerConflict("\n".join(f"{path}: {problem}" for problem in unknown))
    return configuration_file.text(serialise.configuration_to_data(numbered))
