# SPDX-License-Identifier: Apache-2.0
"""CRI-O, which always gives CDI devices: only its folders can be others. A drop-in of ours names them.

Sources: crio.conf(5); pkg/config/reload.go, by which SIGHUP makes it read them anew.
"""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from .cdi import SPEC_DIRS, Cdi, Change, Check, Refusal
from .containerd_config import DIRS
from .toml_edit import key_lines

#: Drop-ins are read in the order of their names, and a later one wins.
DROP_IN = "99-node-devices.conf"


class Crio:
    """One node's CRI-O. runtime: as module node_facts returned it."""

    name = "CRI-O"
    #: Whether the running daemon says what it makes of CDI.
    tells_cdi = False
    #: Whether its containers go on while it is restarted.
    keeps_containers = True
    #: Whether it is not ours to restart.
    by_hand = False

    def __init__(self, runtime: Mapping[str, Any]) -> None:
        self.runtime = runtime
        self.config = runtime["config"]

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        return runtime["name"] == "crio"

    @property
    def program(self) -> str:
        return self.runtime["executable"]

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Nothing: every CRI-O since 1.23 takes the kubelet's CDI names."""
        yield from ()

    @property
    def cdi(self) -> Cdi:
        """What its files make of CDI, by ``crio config``."""
        if not self.config["effective"]:
            raise Refusal(f"{self.program} config fails with its files ({self.config['problem']}); mend them first")
        table = tomllib.loads(self.config["effective"]).get("crio", {}).get("runtime", {})
        # What is not set is printed as a comment.
        return Cdi(True, tuple(table.get(DIRS, SPEC_DIRS)))

    def plan(self, check: Check) -> Change | None:
        """A drop-in with the folders; None where they are read already."""
        cdi = self.cdi
        if cdi.suffices:
            return None
        path = posixpath.join(self.config["drop_in_folder"], DROP_IN)
        later = [file for file, text in sorted(self.config["files"].items()) if file > path and DIRS in text]
        if later:
            (line,) = key_lines({DIRS: cdi.wanted_dirs})
            raise Refusal(f"{later[-1]} is read after any drop-in of ours: set {line} there, and restart CRI-O")
        lines = ["[crio.runtime]", *key_lines({DIRS: cdi.wanted_dirs}), ""]
        return Change(path, self.config["files"].get(path), "\n".join(lines))

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """The drop-in is ours alone, and goes."""
        now = self.config["files"].get(path)
        return None if now is None else Change(path, now, before)

    def check_command(self, path: str) -> list[str]:
        """Nothing: CRI-O reads no drop-in by itself."""
        return []

    def question(self, command: str) -> list[str]:
        """What asks the running daemon."""
        return [command, "runtime", "--socket", self.runtime["socket"], "-o", "json"]
