# SPDX-License-Identifier: Apache-2.0
"""The interface of every container runtime's adapter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .cdi import Cdi, Change, Check


class Adapter:
    """One node's runtime. runtime: from the facts of module node_preflight."""

    name = ""
    #: Whether the running daemon reports its CDI configuration.
    tells_cdi = True
    #: Whether only the user may change and restart the runtime.
    by_hand = False

    def __init__(self, runtime: Mapping[str, Any]) -> None:
        self.runtime = runtime
        self.config = runtime.get("config") or {}
        self.version = runtime.get("version")

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        """Return whether this adapter is for the runtime."""
        raise NotImplementedError

    @property
    def program(self) -> str:
        """The program that can check a configuration."""
        return self.runtime["executable"]

    @property
    def keeps_containers(self) -> bool:
        """Whether containers survive a restart.

        systemd must not kill the unit's other processes, which carry the containers.
        """
        return self.runtime.get("kill_mode") not in ("control-group", "mixed")

    def ended(self, answer: Mapping[str, Any]) -> tuple[int, str]:
        """Return how many containers a restart would end, and how to prevent that.

        answer: the daemon's.
        """
        unit = self.runtime["unit"]
        number = sum(map(self._ends_with_unit, answer.get("containers") or ()))
        return number, f"set KillMode=process for {unit} (systemctl edit {unit})"

    def _ends_with_unit(self, container: Mapping[str, Any]) -> bool:
        return True

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """One message for each obstacle. cdi: whether devices are injected by CDI."""
        raise NotImplementedError

    @property
    def cdi(self) -> Cdi:
        """The CDI configuration in the files.

        Raises UnsupportedConfig if the runtime cannot report it.
        """
        raise NotImplementedError

    def plan(self, check: Check) -> Change | None:
        """Return the smallest checked change that makes CDI effective; None if none is needed.

        Raises UnsupportedConfig.
        """
        raise NotImplementedError

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """Return the change that restores the CDI keys; None if there is nothing to undo.

        path: of the changed file. ours: whether its text is still ours.
        before: its text before our change.
        """
        return None

    def left_on(self, changes: Iterable[Change]) -> str | None:
        """Return others' file that keeps CDI on after our changes are undone, or None."""
        return None

    def check_command(self, path: str) -> list[str]:
        """Return the command that must succeed before the file is written.

        ``{staged}`` is the path of the new text.
        """
        return []

    def question(self, command: str) -> list[str]:
        """Return the command that queries the running daemon. command: the plugin's."""
        return [command, "runtime", "--socket", self.runtime["socket"], "-o", "json"]
