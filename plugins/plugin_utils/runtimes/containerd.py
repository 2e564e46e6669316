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
from .toml_edit import UnixLines, edited, key_lines, parsed, table_of, with_version

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
            # Some parsers of containerd's take what TOML has not.
            but = "this containerd reads it all the same" if self.config["effective"] else "it will not start again"
            yield f"{path} is not valid TOML ({error}): {but}; mend it first"
            return
        for name in containerd_imports.named(data, path):
            if name not in self.config.get("missing_imports", ()):
                continue
            yield (
                f"{path} imports {name}, which is no file: containerd will not start again; take it out of imports, or "
                f"put the file there"
            )
        for name, text in {path: data, **{name: _lenient(text) for name, text in self._imported.items()}}.items():
            disabled = sorted(set(text.get("disabled_plugins") or ()) & _CRI_PLUGINS)
            if disabled:
                yield (
                    f"{name} turns CRI off (disabled_plugins has {', '.join(disabled)}), so no kubelet can use this "
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
        if effective(checked.effective).suffices:
            return Change(self.config["real_path"], content, after)
        change = self._by_drop_in(check)
        if change is None:
            raise Refusal(containerd_imports.overridden(checked.imported, self.version))
        return change

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """What gives the two keys back what they were; None where there is nothing to undo in this runtime.

        path: of the file that was changed. ours: whether it is still as we wrote it. before: its text before us.
        """
        if self.config.get("real_path") != path:
            return self._undo_drop_in(path, ours, before, check)
        now = self.config.get("content")
        if now is None:
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
            wanted = wanted_keys(self.cdi)
            lines.value = edited(lines.value, self._table_with(wanted, data, file_version), wanted)
        return mark + lines.value

    def _table_with(self, wanted: Mapping[str, Any], data: Mapping[str, Any], file_version: int) -> str:
        """The table that the keys are to be in: that of the file's version, as a rule.

        containerd 2 heeds version 3's table in a file of version 2 too, where it stands against the other.
        """
        newer = TABLES[3]
        if version_tuple(self.version) >= (2, 0, 0) and set(wanted) & set(table_of(data, newer)):
            return newer
        return TABLES[file_version]

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
            # See _table_with.
            for name in sorted({table_name, TABLES[3]}):
                was, there = table_of(old, name), table_of(parsed(lines.value), name)
                ours = {ENABLE} if there.get(ENABLE) is True else set()
                if not Cdi(True, tuple(there.get(DIRS) or ())).missing_dirs:
                    ours.add(DIRS)
                differing = {key: was.get(key) for key in KEYS if key in ours and was.get(key) != there.get(key)}
                lines.value = edited(lines.value, name, differing) if differing else lines.value
        return mark + lines.value

    def _by_drop_in(self, check: Check) -> Change | None:
        """Where what the root file imports overrides it: the change that takes effect; None where there is none.

        containerd 2 merges, so that a drop-in of ours that is read last leaves theirs as they are. Before it, the last
        CRI table replaces the others whole: nothing takes effect but a line in that one.
        """
        root, texts = (self.config["content"] or "").removeprefix(_BOM), self._imported
        if version_tuple(self.version) >= (2, 0, 0):
            path = containerd_imports.place_of_drop_in(root, self.config["path"], texts)
            file_version = parsed(root.replace("\r\n", "\n")).get("version")
            if path is None or file_version not in TABLES:
                return None
            lines = key_lines(wanted_keys(self.cdi))
            after = "\n".join([f"version = {file_version}", "", f"[plugins.'{TABLES[file_version]}']", *lines, ""])
        else:
            path = containerd_imports.deciding(root, self.config["path"], texts)
            if path is None:
                return None
            after = self._turned_on(texts[path])
        try:
            checked = self._checked(self.config["content"] or "", check, (path, after))
        except Refusal:
            return None
        return Change(path, texts.get(path), after) if effective(checked.effective).suffices else None

    def _undo_drop_in(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        now = self._imported.get(path)
        if now is None:
            return None
        after = before if ours or before is None else self._keys_of(before, now)
        if after is not None and after != now:
            self._checked(self.config["content"] or "", check, (path, after))
        return Change(path, now, after)

    @property
    def _imported(self) -> Mapping[str, str]:
        """The texts of what the root file imports, by path."""
        return self.config.get("imported") or {}

    def _checked(self, text: str, check: Check, drop_in: tuple[str, str] | None = None) -> Checked:
        """What containerd makes of a text. Raises Refusal unless that differs from now in CDI's two keys alone.

        drop_in: path and new text of a file that it imports.
        """
        paths = (self.config["path"], self.config["real_path"])
        mark = _BOM if text.startswith(_BOM) else ""
        staged = containerd_imports.staged(text.removeprefix(_BOM), *paths)
        if drop_in:
            staged = containerd_imports.with_drop_in(staged, paths[0], self._imported, drop_in[0])
        beside = containerd_imports.has_relative(staged)
        listed = containerd_imports.imports(self.config["effective"], *paths)
        checked = check(mark + staged, beside, listed, drop_in[1] if drop_in else None)
        differences = unexpected_changes(self.config["effective"], checked.effective, *paths, checked.staged)
        if drop_in:
            # The copy's are ours to write.
            differences = [path for path in differences if path != "imports"]
        if differences:
            raise Refusal(
                f"the edit would change more than CDI: {', '.join(differences)} would differ in what containerd makes "
                f"of it; nothing was written"
            )
        return checked


def _lenient(text: str) -> dict[str, Any]:
    """A text as data; nothing of one that is not valid, which `config dump` has refused."""
    try:
        return parsed(text.removeprefix(_BOM).replace("\r\n", "\n"))
    except Refusal:
        return {}
