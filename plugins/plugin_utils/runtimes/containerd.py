# SPDX-License-Identifier: Apache-2.0
"""containerd as distributions, docker.com, upstream's tarball, kind and kubeadm have it: the root file is edited."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple

from . import containerd_imports
from .cdi import Cdi, Change, Check, Checked, Refusal
from .comparison import unexpected_changes
from .containerd_config import DIRS, ENABLE, KEYS, TABLES, effective, wanted_keys
from .toml_edit import UnixLines, edited, parsed, table_of, with_version

#: The first version that the kubelet's CDI names reach.
OLDEST = (1, 7, 2)
# Keys that mean different things in a version 1 file (which a file without a version is) and in later ones.
_VERSIONED_KEYS = ("plugins", "disabled_plugins", "required_plugins")
#: The names that containerd's CRI plugin has in disabled_plugins, by configuration version.
_CRI_PLUGINS = {
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.runtime",
    "io.containerd.cri.v1.images",
}
_BOM = "\ufeff"


class Containerd:
    """One node's containerd. runtime: as module node_facts returned it."""

    name = "containerd"
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
        return runtime["name"] == "containerd"

    @property
    def program(self) -> str:
        """What can check a configuration."""
        return self.runtime["executable"]

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """A sentence for each thing that stands in the way. cdi: whether devices are given by CDI."""
        if cdi and self.version is None:
            yield f"{self.program} --version does not tell a version, so what it makes of CDI is not known"
        elif cdi and version_tuple(self.version) < OLDEST:
            yield (
                f"containerd {self.version} cannot give devices to containers by CDI: below 1.7.2 it drops the CDI "
                f"names that the kubelet passes on, without a word. Upgrade it to 1.7.2 or later (Debian 13 has "
                f"1.7.24, docker.com's containerd.io packages have 1.7 and 2.x), or give devices with injection: "
                f"device_nodes"
            )
        path = self.config["path"]
        if self.config["exists"] and self.config["content"] is None:
            yield f"{path} cannot be read as text: it is not UTF-8; mend it first"
            return
        try:
            data = tomllib.loads((self.config["content"] or "").removeprefix(_BOM).replace("\r\n", "\n"))
        except tomllib.TOMLDecodeError as error:
            yield f"{path} is not valid TOML ({error}): containerd will not start again with it; mend it first"
            return
        disabled = sorted(set(data.get("disabled_plugins") or ()) & _CRI_PLUGINS)
        if disabled:
            yield (
                f"{path} turns CRI off (disabled_plugins has {', '.join(disabled)}), so no kubelet can use this "
                f"containerd: take it out of disabled_plugins and restart containerd"
            )

    @property
    def cdi(self) -> Cdi:
        """What the files make of CDI. Raises Refusal where containerd cannot say."""
        if not self.config["effective"]:
            raise Refusal(f"{self.program} config dump fails with it ({self.config['problem']}); mend it first")
        return effective(self.config["effective"])

    def plan(self, check: Check) -> Change | None:
        """The least change that makes CDI effective, checked; None where it is. Raises Refusal."""
        if self.cdi.suffices:
            return None
        content = self.config["content"]
        after = self._turned_on(content or "")
        checked = self._checked(after, check)
        if not effective(checked.effective).suffices:
            raise Refusal(containerd_imports.overridden(checked.imported, self.version))
        return Change(self.config["real_path"], content, after)

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """What gives the two keys back what they were; None where there is nothing to undo in this runtime.

        path: of the file that was changed. ours: whether it is still as we wrote it. before: its text before us.
        """
        now = self.config.get("content")
        if self.config.get("real_path") != path or now is None:
            return None
        after = before if ours else self._keys_of(before, now)
        if after is not None and after != now:
            self._checked(after, check)
        return Change(path, now, after)

    def question(self, command: str) -> list[str]:
        """What asks the running daemon. command: the plugin's."""
        return [command, "runtime", "--socket", self.runtime["socket"], "-o", "json"]

    def check_command(self, path: str) -> list[str]:
        """What must succeed before the file with that path is written; ``{staged}`` is its new text."""
        if path != self.config["real_path"]:
            return []
        linked = path != self.config["path"]
        if linked and containerd_imports.has_relative((self.config["content"] or "").removeprefix(_BOM)):
            # They are relative to the link, and the new text lies beside the file.
            return []
        return [self.program, "--config", "{staged}", "config", "dump"]

    def _turned_on(self, text: str) -> str:
        mark = _BOM if text.startswith(_BOM) else ""
        with UnixLines(text.removeprefix(_BOM)) as lines:
            data = parsed(lines.value)
            file_version = data.get("version", 1)
            if "version" not in data and not any(data.get(key) for key in _VERSIONED_KEYS):
                file_version = 3 if version_tuple(self.version) >= (2, 0, 0) else 2
                lines.value = with_version(lines.value, file_version)
            if file_version not in TABLES:
                raise Refusal(
                    "it has no `version = 2`, so containerd reads it by rules that know no CDI: migrate it "
                    "(`containerd config migrate` prints the result), look the result over, put it in place and "
                    "restart containerd"
                )
            lines.value = edited(lines.value, TABLES[file_version], wanted_keys(self.cdi))
        return mark + lines.value

    def _keys_of(self, before: str | None, now: str) -> str:
        """``now`` with those of the two keys that are as we set them as they were in ``before``.

        For a file that others have changed since: a key that they gave another value is theirs.
        """
        mark = _BOM if now.startswith(_BOM) else ""
        old = parsed((before or "").removeprefix(_BOM).replace("\r\n", "\n"))
        with UnixLines(now.removeprefix(_BOM)) as lines:
            table_name = TABLES.get(parsed(lines.value).get("version", 1))
            if table_name is None:
                raise Refusal("its version is not the one that was edited")
            was, there = table_of(old, table_name), table_of(parsed(lines.value), table_name)
            ours = {ENABLE} if there.get(ENABLE) is True else set()
            if not Cdi(True, tuple(there.get(DIRS) or ())).missing_dirs:
                ours.add(DIRS)
            lines.value = edited(lines.value, table_name, {key: was.get(key) for key in KEYS if key in ours})
        return mark + lines.value

    def _checked(self, text: str, check: Check) -> Checked:
        """What containerd makes of a text. Raises Refusal unless that differs from now in CDI's two keys alone."""
        paths = (self.config["path"], self.config["real_path"])
        mark = _BOM if text.startswith(_BOM) else ""
        staged = mark + containerd_imports.staged(text.removeprefix(_BOM), *paths)
        beside = containerd_imports.has_relative(staged.removeprefix(_BOM))
        checked = check(staged, beside, containerd_imports.imports(self.config["effective"], *paths))
        differences = unexpected_changes(self.config["effective"], checked.effective, *paths, checked.staged)
        if differences:
            raise Refusal(
                f"the edit would change more than CDI: {', '.join(differences)} would differ in what containerd makes "
                f"of it; nothing was written"
            )
        return checked
