"""Defines the interface of all adapters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .cdi import Cdi, Change, Check


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
        self.program = runtime.get("executable")

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
        """The CDI configuration in the files. Raises UnsupportedConfig if the runtime cannot read the files."""
        raise NotImplementedError

    def plan(self, check: Check) -> Change | None:
        """Return a checked change that makes CDI effective; None if CDI is effective. Raises UnsupportedConfig."""
        raise NotImplementedError

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
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

    def left_on(self, changes: Iterable[Change]) -> str | None:
        """Return another owner's file that keeps CDI on after the undo of our changes, or None."""
        return None
