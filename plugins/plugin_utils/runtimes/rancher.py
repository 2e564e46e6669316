# SPDX-License-Identifier: Apache-2.0
"""Changes the containerd of k3s and RKE2, which generate containerd's root file at every start.

Therefore the change is a drop-in that the root file imports, or an edit of the root file's template. Releases with
containerd 2 need no change, because CDI is on by default. Sources: k3s' advanced options, and k3s' templates in
pkg/agent/templates.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from .cdi import Change, Check, UnsupportedConfig
from .containerd import Containerd
from .containerd_config import KEYS, TABLES, wanted_keys
from .toml_edit import indent_below, key_lines, lines_of

_DIRECTORY = "/agent/etc/containerd/"


class Rancher(Containerd):
    """One node's k3s or RKE2."""

    name = "k3s or RKE2"

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        return super().claims(runtime) and _DIRECTORY in runtime.get("config", {}).get("path", "")

    def plan(self, check: Check) -> Change | None:
        """Return a drop-in if containerd merges imports, or else an edit of the template."""
        if self._is_effective():
            return None
        if self._merges:
            change = self._by_drop_in(check)
            if change is not None:
                return change
        self._require_one_version()
        wanted = wanted_keys(self.cdi)
        # Check the same edit of the root file, because a template cannot be checked.
        checked = self._checked(self._turned_on(self.config["content"] or ""), check)
        if not checked.suffices:
            raise UnsupportedConfig(self._overridden())
        path, template = self._template()
        if template is not None:
            return Change(path, template, self._in_template(template, wanted))
        why = (
            "it imports no directory in which a drop-in would be read last:"
            if self._merges
            else f"containerd {self.version} would not merge a drop-in: upgrade to a release with containerd 2 (k3s or "
            "RKE2 1.31.6, 1.32.2 or later), where CDI is on by default; or"
        )
        raise UnsupportedConfig(
            f"the file is generated at every start, and {why} copy it to {path}, set "
            f"{' and '.join(key_lines(wanted))} below [plugins.'{self._table}'] in the copy, and keep the copy up to "
            "date"
        )

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """Restore the drop-in or template. If others changed the file, restore only the two keys."""
        now = self.config["files"].get(path)
        if now is None:
            return super().undo(path, ours, before, check)
        if ours or before is None:
            return Change(path, now, before)
        without = "".join(line for line in lines_of(now) if not _is_key(line))
        kept = [line.strip() for line in lines_of(before or "") if _is_key(line)]
        header = _below_header(without, self._table, kept) if kept else without
        return Change(path, now, header if header is not None else without)

    @property
    def _file_version(self) -> int:
        return tomllib.loads(self.config["content"] or "").get("version", 2)

    @property
    def _table(self) -> str:
        return TABLES[self._file_version]

    def _template(self) -> tuple[str, str | None]:
        """Return the template's path and text; the text is None if there is no template."""
        name = "config-v3.toml.tmpl" if self._file_version >= 3 else "config.toml.tmpl"
        path = posixpath.join(posixpath.dirname(self.config["path"]), name)
        return path, self.config.get("files", {}).get(path)

    def _in_template(self, template: str, wanted: Mapping[str, Any]) -> str:
        """Add the keys to the template as lines, because a Go template is not TOML. Raises UnsupportedConfig."""
        if any(_is_key(line) for line in lines_of(template)):
            raise UnsupportedConfig(
                f"{self._template()[0]} already has {' or '.join(KEYS)}, so it is not edited: set "
                f"{', '.join(key_lines(wanted))} there"
            )
        text = _below_header(template, self._table, key_lines(wanted))
        if text is None:
            raise UnsupportedConfig(
                f'{self._template()[0]} has no line [plugins."{self._table}"] below which CDI could be turned on '
                f"(lines of a base template cannot be edited): set {', '.join(key_lines(wanted))} there by hand"
            )
        return text


def _is_key(line: str) -> bool:
    return re.match(rf"\s*({'|'.join(KEYS)})\s*=", line) is not None


def _below_header(template: str, table_name: str, lines: list[str]) -> str | None:
    """Return the template with the lines at the start of a table; None if the table has no header."""
    name = rf"""(?P<quote>["']){re.escape(table_name)}(?P=quote)"""
    header = re.search(rf"(?m)^(?P<indent>[ \t]*)\[\s*plugins\s*\.\s*{name}\s*\][^\n]*\n?", template)
    if not header:
        return None
    start, rest = template[: header.end()], template[header.end() :]
    indent = indent_below(header["indent"], rest)
    return "\n".join([start.rstrip("\n"), *(indent + line for line in lines), rest])
