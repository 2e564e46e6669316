"""Tells whether the plugin's service was restarted since a play started it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..support.node_process import answer_of

UNIT = "node-device-plugin.service"


def problem(invocation: str) -> str | None:
    """Why the service no longer is the one of this InvocationID; None if it is, or if systemd does not answer.

    Blocks on systemd and the journal, so it must not run in the event loop.
    """
    now, _why = answer_of(["systemctl", "show", UNIT, "--property=InvocationID", "--value"])
    if now is None or now.strip() == invocation:
        return None
    of_first = ["--quiet", f"_SYSTEMD_INVOCATION_ID={invocation}", "--priority", "err", "--lines", "1"]
    said, _why = answer_of(["journalctl", *of_first, "--no-pager", "--output", "json"])
    why = _message(said or "") or f"journalctl --unit {UNIT} has its log"
    return f"{UNIT} ended after it was started, and systemd started it again: {why}"


def _message(lines: str) -> str:
    """The text of the last journal entry."""
    entries: Sequence[str] = lines.splitlines()
    try:
        return str(json.loads(entries[-1])["MESSAGE"]) if entries else ""
    except (KeyError, TypeError, ValueError):
        return ""
