"""Changes the containerd of k3s and RKE2, which generate containerd's root file at every start.

Therefore the change is a drop-in that the root file imports, or an edit of the root file's template. Releases with
containerd 2 need no change, because CDI is on by default. Sources: k3s' advanced options, and k3s' templates in
pkg/agent/templates.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .cdi import SPEC_DIRS, Change, UnsupportedConfig
from .containerd import Containerd
from .containerd_config import DIRS, ENABLE, KEYS, TABLES, wanted_keys
from .toml_edit import header, indent_below, key_lines, lenient, lines_of
from .toml_text import TEXTS

# Matches the action of a template that inserts k3s' own template.
_BASE = re.compile(r"\{\{-?\s*template\s+\"base\"[^}]*\}\}")
# Matches a comment of a Go template.
_COMMENT = re.compile(r"\{\{(?:-\s)?\s*/\*.*?\*/(?:\s+-)?\}\}", re.DOTALL)
# Matches an action that begins or ends a block, which Go may omit or repeat.
_BLOCK = re.compile(r"\{\{-?\s*(?:(?P<end>end)|if|range|with|block|define)\b")
# Matches the strings and comments of TOML.
_TEXT = re.compile(rf"{TEXTS}|#[^\n]*", re.DOTALL)
# The lines that we write into a template, as data. A template that has other CDI keys is not edited.
_OUR_LINES = ({ENABLE: True}, {DIRS: list(SPEC_DIRS)})
# The first releases with containerd 2.
_UPGRADE = "upgrade to k3s or RKE2 1.31.6, 1.32.2 or later, whose containerd 2 has CDI on by default"


class Rancher(Containerd):
    """One node's k3s or RKE2."""

    name = "k3s or RKE2"

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Yield containerd's obstacles. If the root file must be edited, name its template, too."""
        for obstacle in super().obstacles(cdi):
            yield f"{obstacle} {self._generated}" if self.config["path"] in obstacle else obstacle

    @contextlib.contextmanager
    def _of_generated_file(self) -> Iterator[None]:
        """Name the template in messages about the root file."""
        try:
            yield
        except UnsupportedConfig as error:
            raise UnsupportedConfig(f"{error} {self._generated}") from error

    @property
    def _generated(self) -> str:
        path, template = self._template()
        place = path if template is not None else f"{path}, as a copy of the file"
        return f"(k3s or RKE2 generates {self.config['path']} at every start, so make the change in {place})"

    def plan(self) -> Change | None:
        """Return a drop-in if containerd merges imports, or else an edit of the template."""
        with self._of_generated_file():
            if self._is_effective():
                return None
            if self._merges:
                change = self._by_drop_in()
                if change is not None:
                    return change
        self._require_one_version()
        wanted = wanted_keys(self.cdi)
        with self._of_generated_file():
            # Check the same edit of the root file, because a template cannot be checked.
            checked = self._checked(self._turned_on(self.config["content"] or ""))
            if not checked.suffices:
                raise UnsupportedConfig(self._overridden())
        path, template = self._template()
        if template is not None:
            return Change(path, template, self._in_template(template, wanted))
        why = (
            "it imports no directory in which a drop-in would be read last:"
            if self._merges
            else f"containerd {self.version} would not merge a drop-in: {_UPGRADE}; or"
        )
        raise UnsupportedConfig(f"the file is generated at every start, and {why} {self._by_copy(wanted)}")

    def _by_copy(self, wanted: Mapping[str, Any]) -> str:
        """Return the manual steps for a file whose table no template of the user has."""
        return (
            f"copy {self.config['path']} to {self._template()[0]}, set {' and '.join(key_lines(wanted))} below "
            f"{header(self._table)} in the copy, and keep the copy up to date"
        )

    def without_ours(self, path: str, now: str, before: str | None) -> str | None:
        """Return the text with the two keys restored; None for a file that only we wrote."""
        is_template = path in self.config["files"] and before is not None
        return _without_our_lines(now) if is_template else super().without_ours(path, now, before)

    @property
    def _file_version(self) -> int:
        data = lenient(self.config["content"] or "")
        said = data.get("version") if self.version is None else self._version_of(data)
        usual = 2 if self.version is None or not self._merges else 3
        return said if said in TABLES else usual

    @property
    def _table(self) -> str:
        return self._table_with(wanted_keys(self.cdi), lenient(self.config["content"] or ""), self._file_version)

    def _template(self) -> tuple[str, str | None]:
        """Return the template's path and text; the text is None if there is no template."""
        name = "config-v3.toml.tmpl" if self._file_version >= 3 else "config.toml.tmpl"
        path = posixpath.join(posixpath.dirname(self.config["path"]), name)
        return path, self.config.get("files", {}).get(path)

    def _in_template(self, template: str, wanted: Mapping[str, Any]) -> str:
        """Add the keys to the template as lines, because a Go template is not TOML. Raises UnsupportedConfig."""
        path, lines = self._template()[0], key_lines(wanted)
        structure = _structure(template)
        headers = _headers(structure, self._table)
        whose = _no_effect(structure, headers)
        if whose:
            advice = self._by_copy(wanted)
            raise UnsupportedConfig(
                f"{path} cannot be edited, because {whose} the header {header(self._table)}: "
                f"{advice if self._merges else f'{_UPGRADE}; or {advice}'}"
            )
        if any(_is_key(line) for line in lines_of(structure)):
            raise UnsupportedConfig(
                f"{path} already has {' or '.join(KEYS)}, so it is not edited: set {' and '.join(lines)} below "
                f"{header(self._table)} there, and nowhere else"
            )
        start, rest = template[: headers[0].end()], template[headers[0].end() :]
        indent = indent_below(headers[0]["indent"], rest)
        return "\n".join([start.rstrip("\n"), *(indent + line for line in lines), rest])


def _no_effect(structure: str, headers: list[re.Match[str]]) -> str | None:
    """Return why a line below a header may have no effect, as a clause before the header; None if it always has one."""
    if not headers:
        # TOML allows no second header of a table that the base template has.
        return "only its base template has" if _BASE.search(structure) else "it does not have"
    if len(headers) > 1:
        return "it repeats"
    blocks = _BLOCK.finditer(structure, 0, headers[0].end())
    is_in_block = sum(-1 if block["end"] else 1 for block in blocks)
    return "only a block such as {{ if }} has" if is_in_block else None


def _is_key(line: str) -> bool:
    return re.match(rf"\s*({'|'.join(KEYS)})\s*=", line) is not None


def _without_our_lines(template: str) -> str:
    """Return the template without our lines in CRI's table, which has another name if the release has changed since."""
    kept, position, in_table = "", 0, False
    for line in lines_of(_structure(template)):
        if line.lstrip().startswith("["):
            in_table = any(_headers(line, name) for name in TABLES.values())
        if not (in_table and lenient(line) in _OUR_LINES):
            kept += template[position : position + len(line)]
        position += len(line)
    return kept


def _structure(template: str) -> str:
    """Return the template with spaces for Go comments and multi-line strings, so that all positions stay."""

    def blank(found: re.Match[str]) -> str:
        return " " * len(found[0]) if found[0].startswith(("{{", '"""', "'''")) else found[0]

    return _TEXT.sub(blank, _COMMENT.sub(blank, template))


def _headers(structure: str, table_name: str) -> list[re.Match[str]]:
    """Return the headers of a plugin's table, each with its whole line."""
    name = rf"""(?P<quote>["']{"?" if table_name.isalnum() else ""}){re.escape(table_name)}(?P=quote)"""
    pattern = rf"(?m)^(?P<indent>[ \t]*)\[\s*plugins\s*\.\s*{name}\s*\][^\n]*\n?"
    return list(re.finditer(pattern, structure))
