# SPDX-License-Identifier: Apache-2.0
"""CRI-O, which always gives CDI devices: only its folders can be others. A drop-in of ours names them.

Sources: crio.conf(5); its internal/criocli, by which options and variables override all files, and a root file that is
named must be there; pkg/config, by which each file of the folder of drop-ins is read, whatever its name, and those of
folders in it; pkg/config/reload.go, by which SIGHUP makes it read other folders, and go on telling the former ones, so
that it is restarted; server/runtime_status.go, which since 1.33 tells the configuration of the running daemon.
"""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple

from .adapter import Adapter
from .cdi import SPEC_DIRS, Cdi, Change, Check, UnsupportedConfig
from .comparison import differences
from .containerd_config import DIRS, table_at
from .toml_edit import key_lines, lenient
from .toml_text import statements

#: Drop-ins are read in the order of their names, and a later one wins.
DROP_IN = "99-node-devices.conf"
# The first that knows CRI's field for CDI devices, which is how kubelets from 1.29 on pass them.
_OLDEST = (1, 28, 0)
_TELLS_CDI = (1, 33, 0)
_KEY = ("crio", "runtime", DIRS)


class Crio(Adapter):
    """One node's CRI-O."""

    name = "CRI-O"

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        return runtime["name"] == "crio"

    @property
    def tells_cdi(self) -> bool:
        """From 1.33 on."""
        return self.version is not None and version_tuple(self.version) >= _TELLS_CDI

    def _ends_with_unit(self, container: Mapping[str, Any]) -> bool:
        """With systemd's cgroups each conmon has a scope of its own; with cgroupfs it stays in CRI-O's service, whose
        KillMode the packages do not set.
        """
        return container.get("unit") == self.runtime["unit"]

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Too old a version."""
        if cdi and self.version is not None and version_tuple(self.version) < _OLDEST:
            yield (
                f"CRI-O {self.version} does not know the field in which the kubelet passes CDI names on: upgrade it to "
                f"1.28 or later, or give devices with injection: device_nodes"
            )

    @property
    def cdi(self) -> Cdi:
        """What its files make of CDI, by ``crio config``."""
        return _cdi(self._effective)

    @property
    def _effective(self) -> dict[str, Any]:
        if not self.config["effective"]:
            raise UnsupportedConfig(
                f"{self.program} config fails with its files ({self.config['problem']}); fix them first"
            )
        return tomllib.loads(self.config["effective"])

    def plan(self, check: Check) -> Change | None:
        """A drop-in with the folders, checked; None where they are read already."""
        given = self.config.get("given_dirs")
        if given:
            return self._by_command_line(given)
        cdi = self.cdi
        if cdi.suffices:
            return None
        path = posixpath.join(self.config["drop_in_directory"], DROP_IN)
        (line,) = key_lines({DIRS: cdi.wanted_dirs})
        files = self.config["files"]
        later = [file for file in files if _after(path, file) and _dirs_in(files[file]) is not None]
        if later:
            raise UnsupportedConfig(
                f"{max(later)} is read after any drop-in of ours: set {line} there, and restart CRI-O"
            )
        before = files.get(path)
        if before is not None and lenient(before) != {"crio": {"runtime": {DIRS: _dirs_in(before)}}}:
            raise UnsupportedConfig(f"{path} has more in it than ours: set {line} there, and restart CRI-O")
        after = "\n".join(["[crio.runtime]", line, ""])
        self._require_effective(path, after, check)
        return Change(path, before, after)

    def _by_command_line(self, given: str) -> None:
        """What is given when it is started overrides its files. Raises UnsupportedConfig if that is not enough."""
        name, _equals, value = given.partition("=")
        cdi = Cdi(True, tuple(value.split(",")))
        if not cdi.suffices:
            raise UnsupportedConfig(
                f"{given} in {self.runtime.get('unit') or 'its command line'} overrides its files: have "
                f"{name}={','.join(cdi.wanted_dirs)} there, or take it out, and restart CRI-O"
            )

    def _require_effective(self, path: str, text: str, check: Check) -> None:
        """What CRI-O makes of the new drop-in differs from now in its folders alone. Raises UnsupportedConfig."""
        after = tomllib.loads(check(text, False, None, path).effective)
        changed = [key for key in differences(self._effective, after) if key != ".".join(_KEY)]
        if changed:
            raise UnsupportedConfig(
                f"a drop-in would change more than CDI: {', '.join(changed)} would differ in what CRI-O makes of it; "
                f"nothing was written"
            )
        if not _cdi(after).suffices:
            raise UnsupportedConfig(f"a drop-in at {path} has no effect: set {text.splitlines()[1]} by hand")

    def staged_command(self) -> list[str]:
        """What prints the effective configuration with another folder of drop-ins, ``{staged}``."""
        named = ["--config", self.config["path"]] if self.config["exists"] else []
        return [self.program, *named, "--config-dir", "{staged}", "config"]

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """The drop-in goes; where others have written into it, our key alone."""
        now = self.config["files"].get(path)
        if now is None:
            return None
        without = None if ours else _without_dirs(now)
        return Change(path, now, without if without is not None and lenient(without) else before)


def _cdi(effective: Mapping[str, Any]) -> Cdi:
    # What is not set is printed as a comment.
    return Cdi(True, tuple(table_at(effective, "crio", "runtime").get(DIRS, SPEC_DIRS)))


def _after(one: str, other: str) -> bool:
    """Whether CRI-O reads the other one later: by name, folder for folder."""
    return other.split("/") > one.split("/")


def _dirs_in(text: str) -> Any:
    return table_at(lenient(text), "crio", "runtime").get(DIRS)


def _without_dirs(text: str) -> str:
    """Without the key; as it is where that stands in an inline table."""
    for statement in statements(text) if _dirs_in(text) is not None else ():
        if statement.path == _KEY:
            rest = text[: statement.start] + text[statement.end :]
            # A header alone says nothing.
            return "" if lenient(rest) in ({}, {"crio": {"runtime": {}}}) else rest
    return text
