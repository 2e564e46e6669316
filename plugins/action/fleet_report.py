# SPDX-License-Identifier: Apache-2.0
"""Combines the statuses of all nodes. See plugins/modules/fleet_report.py."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

from ..plugin_utils import wheels
from ..plugin_utils.declaration import plain
from ..plugin_utils.fleet import document, node, page, table
from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Runs only on the controller, without a connection."""

    only_shown = True

    _requires_connection = False
    _VALID_ARGS = frozenset(("hosts", "directory"))

    def act(self, given):
        hostvars = self._vars.get("hostvars", {})
        nodes = {}
        for entry in (entry for host in given["hosts"] for entry in _entries(host, hostvars.get(host, {}))):
            # Each profile of a cluster reports the nodes whose label names no DaemonSet.
            nodes.setdefault((entry["name"], entry.get("profile"), *entry["problems"]), entry)
        data = document.document(list(nodes.values()), wheels.version(), datetime.datetime.now(datetime.UTC))
        result = {"changed": False, "table": table.text(data), "summary": data["summary"]}
        if not self._task.check_mode:
            directory = Path(given["directory"]).expanduser().absolute()
            try:
                files = {
                    "json": _written(directory / "status.json", json.dumps(data, indent=1) + "\n"),
                    "html": _written(directory / "status.html", page.html(data)),
                }
            except OSError as error:
                # Add the tables to the message, because the failure skips the later task that prints them.
                shown = result.pop("table")
                result.update(failed=True, msg=f"{error.filename or directory}: {error.strerror}\n\n{shown}")
                return result
            result["files"] = files
        return result


def _entries(host, variables):
    """Return the entries of a host: one, or those of a profile."""
    # A host that the play did not reach has no registered result.
    read = plain(variables.get("node_devices_status")) or {}
    ended = "the play ended for this host before its status was read"
    return read.get("statuses") or [read.get("status") or node.not_read(host, ended)]


def _written(path, text):
    """Replace a file atomically, so that a browser never loads an incomplete page. Return the file's path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.new")
    staged.write_text(text, encoding="utf-8")
    staged.replace(path)
    return str(path)
