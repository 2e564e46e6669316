# SPDX-License-Identifier: Apache-2.0
"""Runs the plugin's command on the node, and reads its answer.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import json

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict


class CommandError(LedgerConflict):
    """The command failed, or its answer has a wrong form. The message has the command's error."""


class CommandMissing(CommandError):
    """The command is missing."""

    def __init__(self, command):
        super().__init__(f"{command} is not installed on the node: run role node_tools (site.yml) first")


class OtherRelease(CommandError):
    """The command does not know an option of this release."""


def ask(node, command, *arguments):
    """Return the answer of a command that answers in JSON. Raises CommandError. node: a node.Node. command: a list."""
    try:
        code, output, errors = node.run_command([*command, *arguments])
    except OSError:
        # The command's Python may be missing, too.
        raise CommandMissing(command[0]) from None
    try:
        return json.loads(output)
    except (RecursionError, ValueError):
        lines = (errors.strip() or output.strip() or str(code)).splitlines()
    problem = f"{command[0]} {arguments[0]} failed: {lines[-1]}"
    if "unrecognized arguments" not in lines[-1]:
        raise CommandError(problem)
    raise OtherRelease(
        f"{problem}; the node's command is of another release than this collection: run upgrade.yml, or use the "
        "collection of the node's release"
    )


def runtime_question(command, socket):
    """Return the command that asks the running container runtime, and answers in JSON."""
    return [command, "runtime", "--socket", socket, "-o", "json"]


def runtime(node, command, socket):
    """Return the running container runtime's answer. Raises CommandError."""
    answer = ask(node, [command], *runtime_question(command, socket)[1:])
    cdi = answer.get("cdi") if isinstance(answer, dict) else None
    if not isinstance(cdi, dict) or not {"enabled", "spec_dirs"} <= set(cdi):
        # Another release's command may report fewer keys.
        raise CommandError(f"the answer of {command} runtime has no CDI settings: run upgrade.yml")
    return answer
