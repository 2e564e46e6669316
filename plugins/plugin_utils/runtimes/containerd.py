# SPDX-License-Identifier: Apache-2.0
"""containerd as distributions, docker.com, upstream's tarball, kind and kubeadm have it: the root file is edited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple

from . import containerd_imports
from .cdi import Cdi, Change, Check, Checked, UnsupportedConfig
from .comparison import unexpected_changes
from .containerd_config import (
    DIRS,
    ENABLE,
    KEYS,
    TABLES,
    always_on,
    cri_table,
    effective,
    last_version,
    misspelt,
    table_of,
    wanted_keys,
)
from .containerd_imports import BOM, lenient
from .containerd_obstacles import obstacles
from .toml_edit import UnixLines, edited, parsed, with_version

# Keys that mean different things in a version 1 file (which a file without a version is) and in later ones.
_VERSIONED_KEYS = ("plugins", "disabled_plugins", "required_plugins")


class Containerd:
    """One node's containerd. runtime: as module node_preflight returned it."""

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

    @property
    def keeps_containers(self) -> bool:
        """Whether they go on while it is restarted: their shims are processes of its unit."""
        return self.runtime.get("kill_mode") not in ("control-group", "mixed")

    def ended(self, answer: Mapping[str, Any]) -> tuple[int, str]:
        """How many containers a restart would end, by the daemon's answer, and what to do so that it does not."""
        unit = self.runtime["unit"]
        return len(answer.get("containers") or ()), f"set KillMode=process for {unit} (systemctl edit {unit})"

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """A sentence for each thing that stands in the way. cdi: whether devices are given by CDI."""
        yield from obstacles(self.program, self.version, self.config, self._imported, cdi)

    @property
    def cdi(self) -> Cdi:
        """What the files make of CDI. Raises UnsupportedConfig where containerd cannot say."""
        if not self.config["effective"]:
            command = f"{self.program} --config {self.config['path']} config dump"
            raise UnsupportedConfig(f"{command} fails with it ({self.config['problem']}); fix it first")
        return effective(self.config["effective"])

    def plan(self, check: Check) -> Change | None:
        """The least change that makes CDI effective, checked; None where it is. Raises UnsupportedConfig."""
        if self.cdi.suffices:
            return None
        self._require_one_version()
        self._require_small_letters()
        content = self.config["content"]
        after = self._turned_on(content or "")
        checked = self._checked(after, check)
        if effective(checked.effective).suffices:
            return Change(self.config["real_path"], content, after)
        change = self._by_drop_in(check)
        if change is None:
            raise UnsupportedConfig(self._overridden())
        return change

    def _require_one_version(self) -> None:
        """What runs must be what the next start runs. Raises UnsupportedConfig."""
        installed = self.runtime.get("installed_version", self.version)
        if installed != self.version:
            raise UnsupportedConfig(
                f"containerd {self.version} runs, and {self.program} is {installed or 'gone'} by now: restart "
                f"{self.runtime.get('unit') or 'it'} first, as CDI is planned for what the next start runs"
            )

    def _require_small_letters(self) -> None:
        """What is edited must find what containerd finds. Raises UnsupportedConfig."""
        if not self._merges:
            return
        files = {"it": lenient(self.config["content"] or "")}
        files.update({f"{path}, which it imports,": lenient(text) for path, text in self._imported.items()})
        for name, data in files.items():
            for key in misspelt(data):
                raise UnsupportedConfig(
                    f"{name} has {key}, which containerd 2 takes for {key.lower()}: write it so first"
                )

    def _overridden(self) -> str:
        """Why an edit of the root file has no effect."""
        unreadable = self.config.get("unreadable_imports")
        if unreadable:
            return f"{unreadable[0]}, which it imports, is not UTF-8 and may override it; fix it first"
        return containerd_imports.overridden(self._imported, self.version, wanted_keys(self.cdi))

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

    def left_on(self, changes: Iterable[Change]) -> str | None:
        """The file of others that keeps CDI on where our changes are taken back; None where none does.

        changes: that take them back. nvidia-ctk copies all of CRI's settings, ours too, into a drop-in of its own.
        """
        changes = list(changes)
        if always_on(self.version) or not any(map(_turns_off, changes)):
            return None
        undone = {change.path: change.after for change in changes}
        root = undone.get(self.config["real_path"], self.config["content"]) or ""
        texts = {path: undone.get(path, text) or "" for path, text in self._imported.items()}
        read = [(self.config["real_path"], root)]
        read += [(path, texts[path]) for path in containerd_imports.taken_in(lenient(root), self.config["path"], texts)]
        tables = {path: cri_table(lenient(text)) for path, text in read}
        if self._merges and not any(table.get(ENABLE) is False for table in tables.values()):
            # It is on by default.
            return None
        for path, table in reversed(tables.items()):
            # Before 2.0 the last table replaces the others whole.
            if ENABLE in table or (table and not self._merges):
                return path if table.get(ENABLE) is True else None
        return None

    def question(self, command: str) -> list[str]:
        """What asks the running daemon. command: the plugin's."""
        return [command, "runtime", "--socket", self.runtime["socket"], "-o", "json"]

    def check_command(self, path: str) -> list[str]:
        """What must succeed before the file with that path is written; ``{staged}`` is its new text."""
        if path != self.config["real_path"]:
            return []
        linked = path != self.config["path"]
        if linked and containerd_imports.has_relative((self.config["content"] or "").removeprefix(BOM)):
            # They are relative to the link, and the new text lies beside the file.
            return []
        return [self.program, "--config", "{staged}", "config", "dump"]

    def _turned_on(self, text: str) -> str:
        mark = BOM if text.startswith(BOM) else ""
        with UnixLines(text.removeprefix(BOM)) as lines:
            data = parsed(lines.value)
            file_version = self._version_of(data)
            if file_version is None:
                file_version = 3 if self._merges else 2
                lines.value = with_version(lines.value, file_version)
            if file_version not in TABLES:
                raise UnsupportedConfig(
                    f"its version is {file_version}, and {min(TABLES)} to {max(TABLES)} are known; fix it"
                )
            wanted = wanted_keys(self.cdi)
            lines.value = edited(lines.value, self._table_with(wanted, data, file_version), wanted)
        return mark + lines.value

    @property
    def _merges(self) -> bool:
        """Whether it is containerd 2, which merges what it imports, each file by the rules of its own version."""
        return version_tuple(self.version) >= (2, 0, 0)

    def _version_of(self, data: Mapping[str, Any]) -> int | None:
        """By which version's rules containerd reads a file, where that is the root file or one that it imports.

        Before 2.0 the last version that is read counts for all of them, and none for version 1. None where there is
        none, and nothing that depends on it.
        """
        said, imported = data.get("version"), {} if self._merges else self._imported
        if not self._merges:
            root = parsed((self.config["content"] or "").removeprefix(BOM))
            said = last_version([root, *map(lenient, imported.values())])
        depends = "version" in data or imported or any(data.get(key) for key in _VERSIONED_KEYS)
        return said or (1 if depends else None)

    def _table_with(self, wanted: Mapping[str, Any], data: Mapping[str, Any], file_version: int) -> str:
        """The table that the keys are to be in: that of the file's version, as a rule.

        containerd 2 heeds version 3's table in a file of version 2 too, where it stands against the other.
        """
        newer = TABLES[3]
        if self._merges and set(wanted) & set(table_of(data, newer)):
            return newer
        return TABLES[file_version]

    def _keys_of(self, before: str | None, now: str) -> str:
        """``now`` with those of the two keys that are as we set them as they were in ``before``.

        For a file that others have changed since: a key that they gave another value is theirs.
        """
        mark = BOM if now.startswith(BOM) else ""
        old = parsed((before or "").removeprefix(BOM))
        with UnixLines(now.removeprefix(BOM)) as lines:
            # Whichever it was: see _table_with; and somebody may have migrated the file.
            for name in sorted(set(TABLES.values())):
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
        CRI table replaces the others whole: nothing takes effect but a line in that one. So it is with containerd 2
        where no drop-in of ours would be read last.
        """
        root = (self.config["content"] or "").removeprefix(BOM)
        wanted = wanted_keys(self.cdi) if self._merges else None
        for path, after in containerd_imports.candidates(root, self.config, self._imported, wanted, self._turned_on):
            try:
                checked = self._checked(self.config["content"] or "", check, (path, after))
            except UnsupportedConfig:
                continue
            if effective(checked.effective).suffices:
                return Change(path, self._imported.get(path), after)
        return None

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
        """The texts of what the root file imports, by path, in the order in which they are read."""
        texts = self.config.get("imported") or {}
        root = lenient(self.config["content"] or "")
        return {path: texts[path] for path in containerd_imports.taken_in(root, self.config["path"], texts)}

    def _checked(self, text: str, check: Check, drop_in: tuple[str, str] | None = None) -> Checked:
        """What containerd makes of a text. Raises UnsupportedConfig unless only CDI's two keys differ from now.

        drop_in: path and new text of a file that it imports.
        """
        paths = (self.config["path"], self.config["real_path"])
        mark = BOM if text.startswith(BOM) else ""
        staged = containerd_imports.staged(text.removeprefix(BOM), *paths)
        if drop_in:
            staged = containerd_imports.with_drop_in(staged, paths[0], self._imported, drop_in[0])
        beside = containerd_imports.has_relative(staged)
        checked = check(mark + staged, beside, drop_in[1] if drop_in else None)
        differences = unexpected_changes(self.config["effective"], checked.effective, *paths, checked.staged)
        if drop_in:
            # The copy's are ours to write.
            differences = [path for path in differences if path != "imports"]
        if differences:
            raise UnsupportedConfig(
                f"the edit would change more than CDI: {', '.join(differences)} would differ in what containerd makes "
                f"of it; nothing was written"
            )
        return checked


def _turns_off(change: Change) -> bool:
    """Whether a change takes ``enable_cdi = true`` out of a file."""
    before, after = (cri_table(lenient(text or "")).get(ENABLE) is True for text in (change.before, change.after))
    return before and not after
