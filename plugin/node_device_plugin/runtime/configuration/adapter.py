"""Defines the interface of all adapters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...support import directory_names, safe_words
from ...support.node_process import answer_of
from .cdi import SPEC_DIRS, Cdi, Change, UnsupportedConfig

# Seconds that a runtime's program may take to read a copy.
_TRIAL = 60


class Adapter:
    """One node's runtime. runtime: its facts, with the texts of its configuration."""

    name = ""
    #: Whether only the user may change and restart the runtime.
    by_hand = False

    def __init__(self, runtime: Mapping[str, Any]) -> None:
        self.runtime = runtime
        self.config = runtime.get("config") or {}
        self.version = runtime.get("version")
        #: The program that can check a configuration.
        self.program: Any = runtime.get("executable")

    @property
    def tells_cdi(self) -> bool:
        """Whether the running daemon reports its CDI configuration."""
        return True

    @property
    def read_at_start(self) -> list[str]:
        """The files that the daemon reads at its start, without drop-ins."""
        return [self.config["path"]]

    @property
    def keeps_containers(self) -> bool:
        """Whether containers survive a restart: systemd does not kill the unit's other processes."""
        return self.runtime.get("kill_mode") not in ("control-group", "mixed")

    @property
    def other_start(self) -> str | None:
        """Why a restart must come before the CDI plan: the next start has other options. Otherwise None."""
        unit = self.runtime["unit"]
        for option, *both in self.runtime.get("next_start") or ():
            now, then = (" ".join(f"{option}={value}" for value in values) or f"no {option}" for values in both)
            return (
                f"{self.name} runs with {now}, but {unit} would now start it with {then}: restart {unit} first, "
                "because CDI is planned for the options in use"
            )
        return None

    def difference(self, cdi: Mapping[str, Any]) -> str | None:
        """Return why the daemon's behaviour differs from its files, or None. cdi: from the daemon's answer."""
        # None means that the runtime does not report CDI, so only its files count.
        if cdi["enabled"] is False:
            return "the running daemon has CDI off, although its configuration turns it on"
        missing = directory_names.missing(SPEC_DIRS, cdi["spec_dirs"] or SPEC_DIRS)
        return f"the running daemon does not read {', '.join(missing)}" if missing else None

    def wrong_order(self, cdi: Mapping[str, Any]) -> str | None:
        """Return a message if the role's specs take precedence over the plugin's; else None.

        cdi: from an answer with both directories.
        """
        there = [directory_names.normal(directory) for directory in cdi["spec_dirs"] or SPEC_DIRS]
        static, running = SPEC_DIRS
        # If a directory is listed twice, its last position counts.
        if there[::-1].index(directory_names.normal(running)) < there[::-1].index(directory_names.normal(static)):
            return None
        return (
            f"{self.name} reads {running} before {static}, so a container gets a link instead of its target if a "
            f"declared device node is a link: list {static} first in cdi_spec_dirs"
        )

    def ended(self, answer: Mapping[str, Any]) -> tuple[int, str]:
        """Return the number of containers that a restart would end, and the fix. answer: the daemon's."""
        unit = self.runtime["unit"]
        number = sum(map(self._ends_with_unit, answer.get("containers") or ()))
        return number, f"set KillMode=process for {unit} (systemctl edit {unit})"

    def _ends_with_unit(self, container: Mapping[str, Any]) -> bool:
        return True

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Yield one message for each obstacle. cdi: whether devices are injected by CDI."""
        raise NotImplementedError

    @property
    def cdi(self) -> Cdi:
        """The CDI configuration in the files. Raises UnsupportedConfig if the runtime cannot read the files.

        By default, for runtimes whose files we do not read, it is off.
        """
        return Cdi(False, ())

    def plan(self) -> Change | None:
        """Return a checked change that makes CDI effective; None if CDI is effective. Raises UnsupportedConfig."""
        raise NotImplementedError

    def undo(self, path: str, ours: bool, before: str | None) -> Change | None:
        """Return the change that restores the CDI keys; None if the runtime no longer reads the file.

        path: of the changed file. ours: whether the file is unchanged since our change. before: its text before our
        change.
        """
        now = self.text(path)
        return None if now is None else Change(path, now, before if ours else self.without_ours(path, now, before))

    def text(self, path: str) -> str | None:
        """Return the text of a file that the runtime reads and that we may change; None for any other file."""
        return None

    def without_ours(self, path: str, now: str, before: str | None) -> str | None:
        """Return ``now``, the text of a file that others changed, with the CDI keys that ``before`` has."""
        raise NotImplementedError

    def _printed(self, arguments: Iterable[str], staged: str, path: str) -> str:
        """Let the runtime's program print the configuration. Raises UnsupportedConfig if the program rejects it.

        staged: a copy of the file at ``path``. The copy may have secrets, so only root can read it.
        """
        output, problem = answer_of([self.program, *arguments], _TRIAL)
        if output is None:
            known = (self.program, os.path.basename(self.program), path)
            said = safe_words.message(problem.replace(staged, path), known)
            raise UnsupportedConfig(f"{self.program} rejects the new configuration: {said}")
        return output.replace(staged, path)

    def left_on(self, changes: Iterable[Change]) -> str | None:
        """Return another owner's file that keeps CDI on after the undo of our changes, or None."""
        return None
