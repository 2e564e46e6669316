# SPDX-License-Identifier: Apache-2.0
"""Prints a text as it is. See plugins/modules/printed.py."""

from __future__ import annotations

from ansible import constants
from ansible.utils.display import Display

from ...plugin.node_device_plugin.support import tables
from ..plugin_utils.node_action import NodeAction

# Callbacks whose output programs read. Their results contain the text.
_FOR_PROGRAMS = ("json", "jsonl")


class ActionModule(NodeAction):
    """Runs only on the controller, without a connection."""

    only_shown = True

    _requires_connection = False
    _VALID_ARGS = frozenset(("text",))

    def act(self, given):
        hidden = self._values(self._vars).hide(str(given["text"]))
        # A node's text must not control the terminal.
        text = "\n".join(tables.printable(line) for line in hidden.split("\n"))
        if constants.DEFAULT_STDOUT_CALLBACK.rpartition(".")[2] not in _FOR_PROGRAMS:
            Display().display(f"{text}\n")
        return {"changed": False, "msg": text}
