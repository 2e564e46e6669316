"""Sets CRI-O's spec directories with a drop-in. CRI-O's CDI is always on.

Source: crio.conf(5), and these files of CRI-O:

- internal/criocli: Options and environment variables override all files. If the root file is an option, it must exist.
- pkg/config: CRI-O reads all files in the drop-in directory and its subdirectories.
- pkg/config/reload.go: After SIGHUP, CRI-O reads new directories but reports the old directories. So we restart CRI-O.
- server/runtime_status.go: Since 1.33, the running daemon reports its configuration.
"""

from __future__ import annotations

import pathlib
import posixpath
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from ...declaration.cdi import version_tuple
from ...support.new_file import naming
from .adapter import Adapter
from .cdi import SPEC_DIRS, Cdi, Change, UnsupportedConfig, differences
from .containerd_config import DIRS, table_at
from .toml_edit import key_lines, lenient, parsed, with_key

#: The name of our drop-in. CRI-O reads drop-ins in the order of their names, and later drop-ins override earlier ones.
DROP_IN = "99-node-devices.conf"
# The first CRI-O with CRI's field for CDI devices. Kubelets use this field since 1.29.
_OLDEST = (1, 28, 0)
_TELLS_CDI = (1, 33, 0)
_TABLE = ("crio", "runtime")


class Crio(Adapter):
    """One node's CRI-O."""

    name = "CRI-O"

    @property
    def tells_cdi(self) -> bool:
        """Whether the daemon reports its CDI directories. CRI-O does so from 1.33 on."""
        return self.version is not None and version_tuple(self.version) >= _TELLS_CDI

    def _ends_with_unit(self, container: Mapping[str, Any]) -> bool:
        """Return whether the container's conmon runs in CRI-O's service.

        With systemd cgroups, each conmon has its own scope. With cgroupfs, all conmons run in CRI-O's service.
        """
        return container.get("unit") == self.runtime["unit"]

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Yield a message if the version is too old."""
        if cdi and self.version is not None and version_tuple(self.version) < _OLDEST:
            yield (
                f"CRI-O {self.version} ignores the kubelet's CDI device names, so containers would start without "
                "their devices: upgrade it to 1.28 or later, or set injection: device_nodes for the resources"
            )

    @property
    def cdi(self) -> Cdi:
        """The CDI settings: of the option or variable that overrides all files, or in the output of ``crio config``."""
        given = self.config.get("given_dirs")
        return Cdi(True, tuple(given.partition("=")[2].split(","))) if given else _cdi(self._effective)

    @property
    def _effective(self) -> dict[str, Any]:
        if not self.config["effective"]:
            raise UnsupportedConfig(
                f"`{self.program} config` fails ({self.config['problem']}): fix CRI-O's configuration files first"
            )
        return parsed(self.config["effective"])

    def plan(self) -> Change | None:
        """Return a checked drop-in with the directories; None if CRI-O already reads them. Raises UnsupportedConfig."""
        cdi, given = self.cdi, self.config.get("given_dirs")
        if cdi.suffices:
            return None
        if given:
            raise UnsupportedConfig(
                f"{given} in {self.runtime.get('unit') or 'the command line'} overrides CRI-O's files: change it to "
                f"{given.partition('=')[0]}={','.join(cdi.wanted_dirs)}, or remove it, and restart CRI-O"
            )
        path = posixpath.join(self.config["drop_in_directory"], DROP_IN)
        (line,) = key_lines({DIRS: cdi.wanted_dirs})
        files = self.config["files"]
        # CRI-O sorts each directory by name.
        later = [file for file in files if file.split("/") > path.split("/") and _dirs_in(files[file]) is not None]
        if later:
            raise UnsupportedConfig(
                f"{max(later)} is read after this collection's drop-in and overrides it: set {line} there and restart "
                "CRI-O"
            )
        before = files.get(path)
        if before is not None and lenient(before) != {"crio": {"runtime": {DIRS: _dirs_in(before)}}}:
            raise UnsupportedConfig(
                f"{path} has settings of others, so this collection does not edit it: set {line} there and restart "
                "CRI-O"
            )
        after = "\n".join(["[crio.runtime]", line, ""])
        self._require_effective(path, after)
        return Change(path, before, after)

    def _require_effective(self, path: str, text: str) -> None:
        """Raise UnsupportedConfig if the drop-in is not effective or changes other settings."""
        after = parsed(self.effective_with(path, text))
        changed = [key for key in differences(self._effective, after) if key != f"crio.runtime.{DIRS}"]
        if changed:
            raise UnsupportedConfig(
                f"the drop-in would also change {', '.join(changed)} in CRI-O's effective configuration, so nothing "
                f"was written: set {DIRS} by hand"
            )
        if not _cdi(after).suffices:
            raise UnsupportedConfig(f"a drop-in at {path} has no effect: set {text.splitlines()[1]} by hand")

    def effective_with(self, path: str, text: str) -> str:
        """Return the effective configuration with a new text of our drop-in, from a copy of the drop-in directory.

        Raises UnsupportedConfig if CRI-O rejects the text.
        """
        with tempfile.TemporaryDirectory(prefix="node-devices.") as top:
            with naming(top):
                for name, content in {**self.config["files"], path: text}.items():
                    copy = pathlib.Path(top, posixpath.relpath(name, self.config["drop_in_directory"]))
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(content.encode())
            named = ["--config", self.config["path"]] if self.config["exists"] else []
            return self._printed([*named, "--config-dir", top, "config"], posixpath.join(top, DROP_IN), path)

    def text(self, path: str) -> str | None:
        """Return the text of a drop-in."""
        return self.config["files"].get(path)

    def without_ours(self, path: str, now: str, before: str | None) -> str | None:
        """Return the drop-in without our key; ``before`` if nothing else is in the drop-in."""
        rest = now if _dirs_in(now) is None else with_key(now, _TABLE, DIRS, None)
        # An empty table has no effect.
        return before if lenient(rest) in ({}, {"crio": {"runtime": {}}}) else rest


def _cdi(effective: Mapping[str, Any]) -> Cdi:
    # CRI-O prints unset keys as comments.
    return Cdi(True, tuple(table_at(effective, *_TABLE).get(DIRS, SPEC_DIRS)))


def _dirs_in(text: str) -> Any:
    return table_at(lenient(text), *_TABLE).get(DIRS)
