"""Makes CDI effective in containerd by an edit of the root file or an import."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...declaration.cdi import always_on, version_tuple
from ...support.new_file import naming
from . import containerd_imports
from .adapter import Adapter
from .cdi import STAGED_DROP_IN, Cdi, Change, UnsupportedConfig
from .containerd_config import (
    DIRS,
    ENABLE,
    KEYS,
    TABLES,
    cri_table,
    effective,
    last_version,
    table_at,
    table_of,
    texts_in,
    wanted_keys,
)
from .containerd_imports import Imports
from .containerd_obstacles import obstacles
from .toml_edit import edited, key_lines, lenient, parsed

# Keys with another meaning in version 1. A file without a version counts as version 1.
_VERSIONED_KEYS = ("plugins", "disabled_plugins", "required_plugins")


class Containerd(Adapter):
    """One node's containerd."""

    name = "containerd"

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Yield messages about an unsuitable version, and about files that containerd or the kubelet cannot use."""
        yield from obstacles(self, self._imports, cdi)

    @property
    def read_at_start(self) -> list[str]:
        return [*super().read_at_start, *self._imported]

    @property
    def cdi(self) -> Cdi:
        """The CDI settings in the output of ``containerd config dump``. Raises UnsupportedConfig if it failed."""
        if not self.config["effective"]:
            command = f"{self.program} --config {self.config['path']} config dump"
            problem = self.config["problem"]
            is_named = not self._imported or any(path in problem for path in self.read_at_start)
            which = "the file" if is_named else "the file or one of its imports"
            raise UnsupportedConfig(f"`{command}` fails ({problem}): fix {which} first")
        return effective(self.config["effective"])

    def plan(self) -> Change | None:
        """Return an edit of the root file or an import; None if CDI is effective. Raises UnsupportedConfig."""
        if self._is_effective():
            return None
        self._require_one_version()
        content = self.config["content"]
        after = self._turned_on(content or "")
        checked = self._checked(after)
        if checked.suffices:
            return Change(self.config["real_path"], content, after)
        change = self._by_drop_in()
        if change is None:
            raise UnsupportedConfig(self._overridden())
        return change

    def _is_effective(self) -> bool:
        """Return whether CDI is effective at every start.

        If a version 1 file has two CRI tables, containerd 2.0 to 2.3 uses one of them at random. Then raise
        UnsupportedConfig unless CDI is effective with both tables.
        """
        is_effective = self.cdi.suffices
        files = {"the file": self.config["content"] or "", **self._imported}
        if not self._merges or always_on(self.version):
            files = {}
        for name, text in files.items():
            data = lenient(text)
            former, full = table_of(data, TABLES[1]), table_of(data, TABLES[2])
            agree = all(former.get(key) == full.get(key) for key in KEYS)
            if data.get("version") in (None, 0, 1) and former and full and not (agree and is_effective):
                names = "[plugins.cri]", f'[plugins."{TABLES[2]}"]'
                raise UnsupportedConfig(
                    f"{name} has {names[0]} and {names[1]} and no version above 1, so containerd {self.version} uses "
                    f"one of them at random: move the keys of {names[0]} into {names[1]}, and remove {names[0]}"
                )
        return is_effective

    def _require_one_version(self) -> None:
        """Raise UnsupportedConfig unless the next start runs the current containerd version."""
        installed = self.runtime.get("installed_version", self.version)
        if installed != self.version:
            raise UnsupportedConfig(
                f"containerd {self.version} runs, but {self.program} is now {installed or 'missing'}, and CDI must be "
                "planned for the version that the next start runs: restart "
                f"{self.runtime.get('unit') or 'the runtime'} first"
            )

    def _overridden(self) -> str:
        """Return the message that explains why an edit of the root file has no effect."""
        unreadable = self._imports.unreadable
        if unreadable:
            return f"its import {unreadable[0]} is not UTF-8 and may override this file: fix the import first"
        return containerd_imports.overridden(self._imported, self.version, wanted_keys(self.cdi))

    def undo(self, path: str, ours: bool, before: str | None) -> Change | None:
        """Return the checked change that restores the file, or only the two keys if others changed the file."""
        change = super().undo(path, ours, before)
        # A template of k3s is no TOML, so nothing checks it.
        is_template = path in self.config.get("files", ())
        if change and change.after is not None and change.after != change.before and not is_template:
            is_root = path == self.config["real_path"]
            root, drop_in = (change.after, None) if is_root else (self.config["content"] or "", (path, change.after))
            self._checked(root, drop_in)
        return change

    def text(self, path: str) -> str | None:
        """Return the text of the root file, of an import or of a template of k3s."""
        root = {self.config["real_path"]: self.config["content"]}
        return {**self.config.get("files", {}), **self._imported, **root}.get(path)

    def without_ours(self, path: str, now: str, before: str | None) -> str | None:
        """Return the text with the two keys restored; None for a drop-in that only we wrote."""
        rest = self._keys_of(now, before)
        data = lenient(rest)
        # An empty table has no effect.
        is_empty = data.keys() <= {"version", "plugins"} and not any(table_at(data, "plugins").values())
        return None if before is None and path != self.config["real_path"] and is_empty else rest

    def left_on(self, changes: Iterable[Change]) -> str | None:
        """Return a file that keeps CDI on, or None. For example, nvidia-ctk's drop-in copies our CRI settings."""
        changes = list(changes)
        if always_on(self.version) or not any(map(_turns_off, changes)):
            return None
        undone = {change.path: change.after for change in changes}
        read = {self.config["real_path"]: self.config["content"], **self._imported}
        tables = {path: cri_table(lenient(undone.get(path, text) or "")) for path, text in read.items()}
        if self._merges and not any(table.get(ENABLE) is False for table in tables.values()):
            # CDI is on by default.
            return None
        for path, table in reversed(tables.items()):
            # Before 2.0, the last table replaces all other tables.
            if ENABLE in table or (table and not self._merges):
                return path if table.get(ENABLE) is True else None
        return None

    def _turned_on(self, text: str) -> str:
        data = parsed(text)
        said = self._version_of(data)
        file_version = said or (3 if self._merges else 2)
        if file_version not in TABLES:
            # A text may be anything, also a secret.
            which = f"version = {said}" if isinstance(said, int) else "its version"
            raise UnsupportedConfig(f"{which} is not supported: set a version from {min(TABLES)} to {max(TABLES)}")
        wanted = wanted_keys(self.cdi)
        table_name = self._table_with(wanted, data, file_version)
        return edited(text, table_name, wanted, None if said else file_version)

    @property
    def _merges(self) -> bool:
        """Whether this is containerd 2, which merges imports and reads each by its own version."""
        return version_tuple(self.version) >= (2, 0, 0)

    def _version_of(self, data: Mapping[str, Any]) -> int | None:
        """Return the version by which containerd reads a file: the root file or an import.

        Before 2.0, the last version in any file applies to all files, and the default is 1. The result is None if the
        file has neither a version nor keys that depend on the version.
        """
        said, imported = data.get("version"), {} if self._merges else self._imported
        if not self._merges:
            root = lenient(self.config["content"] or "")
            said = last_version([root, *map(lenient, imported.values())])
        depends = "version" in data or imported or any(data.get(key) for key in _VERSIONED_KEYS)
        return said or (1 if depends else None)

    def _table_with(self, wanted: Mapping[str, Any], data: Mapping[str, Any], file_version: int) -> str:
        """Return the table for the keys. Raises UnsupportedConfig if containerd ignores the table.

        Usually, this is the table of the file's version. In a version 2 file, containerd 2 also reads version 3's
        table, which overrides version 2's table. In a version 1 file, containerd 2 reads the table of any version, and
        merges two tables in random order.
        """
        usual, newer = TABLES[file_version], TABLES[3]
        if self._merges and set(wanted) & set(table_of(data, newer)):
            return newer
        known = (TABLES[2], newer, usual) if self._merges else (usual, TABLES[2])
        there = next((name for name in known if table_of(data, name)), usual)
        if file_version != 1 or there == usual:
            return usual
        if not self._merges:
            raise UnsupportedConfig(
                f"the file has no version above 1, so containerd {self.version} ignores its table "
                f'[plugins."{there}"]: set version = 2 before the first table'
            )
        return there

    def _keys_of(self, now: str, before: str | None) -> str:
        """Return ``now``, a text that others changed, with our CDI keys restored to their values in ``before``.

        A key is ours if it has our value.
        """
        old = parsed(before or "")
        # Any table may have the keys (see _table_with), for example if a user migrated the file.
        for name in sorted(set(TABLES.values())):
            was, there = table_of(old, name), table_of(parsed(now), name)
            ours = {ENABLE} if there.get(ENABLE) is True else set()
            if not Cdi(True, tuple(there.get(DIRS) or ())).missing_dirs:
                ours.add(DIRS)
            differing = {key: was.get(key) for key in KEYS if key in ours and was.get(key) != there.get(key)}
            now = edited(now, name, differing) if differing else now
        return now

    def _by_drop_in(self) -> Change | None:
        """Return an effective change for a root file with imports that override it; None if there is no such change.

        containerd 2 merges imports, so our drop-in is effective if containerd reads it last. If our drop-in would have
        no effect, the change edits an import. Before 2.0, the last CRI table replaces all other CRI tables. Then the
        change edits that table.
        """
        for path, after in self._drop_ins():
            try:
                checked = self._checked(self.config["content"] or "", (path, after))
            except UnsupportedConfig:
                continue
            if checked.suffices:
                return Change(path, self._imported.get(path), after)
        return None

    def _drop_ins(self) -> Iterator[tuple[str, str]]:
        """Yield path and new text of each drop-in that may make CDI effective, best first."""
        root, path, texts = self.config["content"] or "", self.config["path"], self._imported
        file_version = parsed(root).get("version")
        known = containerd_imports.deciding(texts)
        if self._merges and file_version in TABLES:
            place = containerd_imports.place_of_drop_in(root, path, texts)
            if place and place in texts:
                known = [place, *known]
            elif place:
                header = f"[plugins.'{TABLES[file_version]}']"
                yield place, "\n".join([f"version = {file_version}", "", header, *key_lines(wanted_keys(self.cdi)), ""])
        for file in dict.fromkeys(known):
            # Do not edit a link's target, because other configurations may import the target, too.
            if file not in self._imports.links:
                with contextlib.suppress(UnsupportedConfig):
                    yield file, self._turned_on(texts[file])
            if not self._merges:
                return

    @property
    def _imports(self) -> Imports:
        # The facts keep the imports, so that each file is read once even with several adapters.
        if "imports" not in self.config:
            self.config["imports"] = containerd_imports.read(self.config)
        imports: Imports = self.config["imports"]
        return imports

    @property
    def _imported(self) -> Mapping[str, str]:
        return self._imports.texts

    def _checked(self, text: str, drop_in: tuple[str, str] | None = None) -> Cdi:
        """Return the CDI settings after an edit. Raises UnsupportedConfig if the edit would change other keys.

        drop_in: path and new text of an import.
        """
        paths = (self.config["path"], self.config["real_path"])
        place, new_text = drop_in or (None, None)
        staged = containerd_imports.staged(text, *paths, self._imported, place)
        after = self.effective_with(staged, new_text)
        differences = containerd_imports.unexpected_changes(self.config["effective"], after, *paths)
        if drop_in:
            # Ignore the imports, because the staged copy imports the staged drop-in.
            differences = [path for path in differences if path != "imports"]
        if differences:
            raise UnsupportedConfig(
                f"the edit would also change {', '.join(differences)} in containerd's effective configuration, so "
                "nothing was written: edit the CDI keys by hand"
            )
        return effective(after)

    def effective_with(self, text: str, drop_in: str | None = None) -> str:
        """Return the effective configuration with a new root file. Raises UnsupportedConfig if containerd rejects it.

        drop_in: text of the file that the root file imports as STAGED_DROP_IN, or None.
        """
        path = self.config["path"]
        is_relative = any(not name.startswith("/") for name in texts_in(parsed(text), "imports"))
        directory = os.path.dirname(path) if is_relative else None
        with _copy(drop_in or "") as its_copy, _copy(text.replace(STAGED_DROP_IN, its_copy), directory) as staged:
            return self._printed(["--config", staged, "config", "dump"], staged, path)


@contextlib.contextmanager
def _copy(text: str, directory: str | None = None) -> Iterator[str]:
    """Write a text to a temporary file, and yield the file's path."""
    descriptor, path = tempfile.mkstemp(prefix=".node-devices.", suffix=".tmp", dir=directory)
    try:
        with naming(path), os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def _turns_off(change: Change) -> bool:
    """Return whether a change removes ``enable_cdi = true`` from a file."""
    before, after = (cri_table(lenient(text or "")).get(ENABLE) is True for text in (change.before, change.after))
    return before and not after
