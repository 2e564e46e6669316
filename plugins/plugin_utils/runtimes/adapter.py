# SPDX-License-Identifier: Apache-2.0
"""What every adapter of a container runtime has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .cdi import Cdi, Change, Check


class Adapter:
    """One node's runtime. runtime: as module node_preflight returned it."""

    name = ""
    #: Whether the running daemon says what it makes of CDI.
    tells_cdi = True
    #: Whether it is not ours to restart.
    by_hand = False

    def __init__(self, runtime: Mapping[str, Any]) -> None:
        self.runtime = runtime
        self.config = runtime.get("config") or {}
        self.version = runtime.get("version")

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        """Whether a runtime is of this kind."""
        raise NotImplementedError

    @property
    def program(self) -> str:
        """What can check a configuration."""
        return self.runtime["executable"]

    @property
    def keeps_containers(self) -> bool:
        """Whether they go on while it is restarted: what carries them are processes of its unit."""
        return self.runtime.get("kill_mode") not in ("control-group", "mixed")

    def ended(self, answer: Mapping[str, Any]) -> tuple[int, str]:
        """How many containers a restart would end, by the daemon's answer, and what to do so that it does not."""
        unit = self.runtime["unit"]
        number = sum(map(self._ends_with_unit, answer.get("containers") or ()))
        return number, f"set KillMode=process for {unit} (systemctl edit {unit})"

    def _ends_with_unit(self, container: Mapping[str, Any]) -> bool:
        return True

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """A sentence for each thing that stands in the way. cdi: whether devices are given by CDI."""
        raise NotImplementedError

    @property
    def cdi(self) -> Cdi:
        """What the files make of CDI. Raises UnsupportedConfig where the runtime cannot say."""
        raise NotImplementedError

    def plan(self, check: Check) -> Change | None:
        """The least change that makes CDI effective, checked; None where it is. Raises UnsupportedConfig."""
        raise NotImplementedError

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """What gives CDI's keys back what they were; None where there is nothing to undo in this runtime.

        path: of the file that was changed. ours: whether it is still as we wrote it. before: its text before us.
        """
        return None

    def left_on(self, changes: Iterable[Change]) -> str | None:
        """The file of others that keeps CDI on where our changes are taken back; None where none does."""
        return None

    def check_command(self, path: str) -> list[str]:
        """What must succeed before the file with that path is written; ``{staged}`` is its new text."""
        return []

    def question(self, command: str) -> list[str]:
        """What asks the running daemon. command: the plugin's."""
        return [command, "runtime", "--socket", self.runtime["socket"], "-o", "json"]
