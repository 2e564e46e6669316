"""Compares a running daemon and its next start with the daemon's files. Each difference is one message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...support import directory_names
from .cdi import SPEC_DIRS, Cdi


def shortfall(cdi: Cdi) -> str:
    """Return why CDI is not effective with a configuration. cdi: the configuration's CDI settings."""
    if not cdi.enabled:
        return "CDI is off in the runtime's configuration"
    return f"the runtime's configuration does not list {', '.join(cdi.missing_dirs)} in cdi_spec_dirs"


def difference(cdi: Mapping[str, Any]) -> str | None:
    """Return why the daemon's behaviour differs from its files, or None. cdi: from the daemon's answer."""
    # None means that the runtime does not report CDI, so only its files count.
    if cdi["enabled"] is False:
        return "the running daemon has CDI off, although its configuration turns it on"
    missing = directory_names.missing(SPEC_DIRS, cdi["spec_dirs"] or SPEC_DIRS)
    return f"the running daemon does not read {', '.join(missing)}" if missing else None


def wrong_order(name: str, cdi: Mapping[str, Any]) -> str | None:
    """Return a message if the role's specs take precedence over the plugin's; else None.

    name: the runtime's. cdi: from an answer with both directories.
    """
    there = [directory_names.normal(directory) for directory in cdi["spec_dirs"] or SPEC_DIRS]
    static, running = SPEC_DIRS
    # If a directory is listed twice, its last position counts.
    if there[::-1].index(directory_names.normal(running)) < there[::-1].index(directory_names.normal(static)):
        return None
    return (
        f"{name} reads {running} before {static}, so a container gets a link instead of its target if a declared "
        f"device node is a link: list {static} first in cdi_spec_dirs"
    )


def other_start(name: str, unit: str, changes: Iterable[Mapping[str, Any]]) -> str | None:
    """Return why a restart must come before the CDI plan, or None. changes: the runtime's fact ``next_start``."""
    for change in changes:
        now, then = (
            " ".join(f"{change['option']}={value}" for value in change[when]) or f"no {change['option']}"
            for when in ("now", "then")
        )
        return (
            f"{name} runs with {now}, but {unit} would now start it with {then}: restart {unit} first, because CDI is "
            "planned for the options in use"
        )
    return None
