"""Tells whether the plugin's service was restarted since a play started it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from ..support.cancel_safe import result_within

UNIT = "node-device-plugin.service"
#: Maximum seconds for an answer of systemd or the journal.
_LIMIT = 10.0


async def problem(invocation: str) -> str | None:
    """Why the service no longer is the one of this InvocationID; None if it is, or if systemd does not answer."""
    now = await output("systemctl", "show", UNIT, "--property=InvocationID", "--value")
    if now is None or now.strip() == invocation:
        return None
    of_first = ["--quiet", f"_SYSTEMD_INVOCATION_ID={invocation}", "--priority", "err", "--lines", "1"]
    said = await output("journalctl", *of_first, "--no-pager", "--output", "json")
    why = _message(said or "") or f"journalctl --unit {UNIT} has its log"
    return f"{UNIT} ended after it was started, and systemd started it again: {why}"


async def output(*command: str) -> str | None:
    """The output of a command of systemd; None if the command fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return None
    try:
        output, _errors = await result_within(process.communicate(), _LIMIT)
    except asyncio.TimeoutError:
        process.kill()
        return None
    return output.decode("utf-8", "replace") if process.returncode == 0 else None


def _message(lines: str) -> str:
    """The text of the last journal entry."""
    entries: Sequence[str] = lines.splitlines()
    try:
        return str(json.loads(entries[-1])["MESSAGE"]) if entries else ""
    except (KeyError, TypeError, ValueError):
        return ""
