# SPDX-License-Identifier: Apache-2.0
"""containerd's part of CDI: what its configuration makes of it, and the least change that turns it on.

Works on texts alone. Everything that is not one of the two keys stays as it was, to the byte.
"""

from __future__ import annotations

import fnmatch
import json
import posixpath
import re
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import folders

#: Where our specs are, and the plugin's own: containerd's defaults.
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")
ENABLE = "enable_cdi"
DIRS = "cdi_spec_dirs"
KEYS = (ENABLE, DIRS)

# The plugin whose table holds the two keys, by the version of the configuration file.
_TABLES = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime", 4: "io.containerd.cri.v1.runtime"}
# Keys that mean different things in a version 1 file (which a file without a version is) and in later ones.
_VERSIONED_KEYS = ("plugins", "disabled_plugins", "required_plugins")


class Refusal(Exception):
    """A configuration that is not edited: why, and what to do by hand."""


class Cdi(NamedTuple):
    """What a configuration makes of CDI."""

    enabled: bool
    spec_dirs: tuple[str, ...]

    @property
    def suffices(self) -> bool:
        return self.enabled and not self.missing_dirs

    @property
    def missing_dirs(self) -> list[str]:
        return folders.lacking(SPEC_DIRS, self.spec_dirs)

    @property
    def wanted_dirs(self) -> list[str]:
        """Its folders with ours: what lies in a later one overrides an earlier one's, and running beats static."""
        wanted = list(self.spec_dirs)
        static, running = SPEC_DIRS
        missing = self.missing_dirs
        if static in missing:
            names = [folders.normal(folder) for folder in wanted]
            at = len(wanted) if running in missing else names.index(folders.normal(running))
            wanted.insert(at, static)
        if running in missing:
            wanted.append(running)
        return wanted


def effective(dump: str) -> Cdi:
    """What the output of ``containerd config dump`` says."""
    table = _cri_table(tomllib.loads(dump))
    return Cdi(bool(table.get(ENABLE, False)), tuple(table.get(DIRS) or ()))


def plan(content: str | None, dump: str, version: str) -> str | None:
    """The root file's new text; None where it makes CDI effective as it is.

    content: the file's text; None where there is no file.
    dump: what ``config dump`` makes of the file as it is.
    version: containerd's.
    Raises Refusal.
    """
    now = effective(dump)
    if now.suffices:
        return None
    wanted: dict[str, Any] = {ENABLE: True, DIRS: now.wanted_dirs}
    with _UnixLines(content or "") as text:
        data = _parsed(text.value)
        file_version = data.get("version", 1)
        if "version" not in data and not any(key in data for key in _VERSIONED_KEYS):
            file_version = 3 if version_tuple(version) >= (2, 0, 0) else 2
            text.value = _with_version(text.value, file_version)
        if file_version not in _TABLES:
            raise Refusal(
                "it has no `version = 2`, so containerd reads it by rules that know no CDI: migrate it "
                "(`containerd config migrate` prints the result), look the result over, put it in place and restart "
                "containerd"
            )
        text.value = _edited(text.value, _TABLES[file_version], wanted)
    return text.value


def undo(content: str, before: str | None) -> str:
    """``content`` with the two keys as they were in ``before``, for a file that others have changed since."""
    old = _parsed((before or "").replace("\r\n", "\n"))
    with _UnixLines(content) as text:
        table_name = _TABLES.get(_parsed(text.value).get("version", 1))
        if table_name is None:
            raise Refusal("its version is not the one that was edited")
        was = old.get("plugins", {}).get(table_name, {})
        text.value = _edited(text.value, table_name, {key: was.get(key) for key in KEYS})
    return text.value


def imports(dump: str, path: str, *other_names: str) -> list[str]:
    """What a root file takes in, by the output of ``config dump``; the root file's own names left out.

    containerd 1.7 lists files, in no order; 2.x what is written, which may be relative or a pattern.
    """
    names = _absolute(tomllib.loads(dump).get("imports") or [], path)
    return sorted(name for name in names if name not in (path, *other_names))


def _absolute(names: list[str], path: str) -> list[str]:
    """Imports of the file with that path, as containerd resolves them."""
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) for name in names]


def overridden(texts: Mapping[str, str], version: str) -> str:
    """Why turning CDI on in a root file has no effect, and what to do.

    texts: of the files that it imports, by path.
    """
    whole = version_tuple(version) < (2, 0, 0)
    advice = []
    for path, text in sorted(texts.items()):
        table = _cri_table(_parsed(text))
        there = Cdi(bool(table.get(ENABLE, not whole)), tuple(table.get(DIRS, SPEC_DIRS)))
        # Before 2.0 an imported table replaces the root file's, later its keys do.
        if not table or there.suffices:
            continue
        wrong = {} if there.enabled else {ENABLE: True}
        if there.missing_dirs:
            wrong[DIRS] = there.wanted_dirs
        advice.append(f"{' and '.join(_lines(wrong))} in {path}")
    by = "an imported CRI table replaces its own" if whole else "what it imports overrides it"
    return f"turning CDI on in it has no effect, because {by}: set {', '.join(advice) or 'the same in its imports'}"


def staged(content: str, path: str, real_path: str) -> str:
    """The text for a copy under another name that is to mean what the file would.

    Without an import of the file itself, such as ``config dump`` prints: containerd passes over what it has read, but
    from the copy it would read the old text, which overrides the new one. Raises Refusal.
    """
    imports = _parsed(content).get("imports") or []
    names = _absolute(imports, path)
    itself = [at for at, name in enumerate(names) if name in (path, real_path)]
    for given, name in zip(imports, names, strict=True):
        if any(_matches(file, name) for file in (path, real_path)):
            raise Refusal(
                f"its import {given} takes in the file itself, so that a change of it cannot be tried before it is "
                f"written; import a folder of its own, such as conf.d/*.toml"
            )
    if not itself:
        return content
    document = _tomlkit().parse(content)
    for at in reversed(itself):
        del document["imports"][at]
    return str(document.as_string())


def _matches(path: str, pattern: str) -> bool:
    """As containerd matches imports: a star stands for no slash."""
    return "*" in pattern and pattern.count("/") == path.count("/") and fnmatch.fnmatchcase(path, pattern)


def unexpected_changes(before: str, after: str, *paths: str) -> list[str]:
    """What differs between two outputs of ``config dump`` apart from the wanted keys, as paths of keys.

    A root file is among its own imports, hence the paths of both.
    """
    return [path for path in _differences(_normal(before, paths), _normal(after, paths)) if path]


def _normal(dump: str, paths: tuple[str, ...]) -> dict[str, Any]:
    data = tomllib.loads(dump)
    data["imports"] = imports(dump, *paths)
    table = _cri_table(data)
    for key in KEYS:
        table.pop(key, None)
    return data


def _differences(before: Any, after: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            difference
            for key in sorted({*before, *after})
            for difference in _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if before == after else [path]


def _cri_table(data: Mapping[str, Any]) -> dict[str, Any]:
    plugins = data.get("plugins") or {}
    # containerd 2 has both: the one that holds CDI's keys is the newer.
    for name in ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"):
        if name in plugins:
            return plugins[name]
    return {}


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"it is not valid TOML ({error}); mend it first") from error


def _edited(text: str, table_name: str, wanted: Mapping[str, Any]) -> str:
    """The text with the keys set (removed where they are None), by the first way that changes nothing else."""
    before = _parsed(text)
    expected = {**before, "plugins": {**before.get("plugins", {})}}
    keys = {**expected["plugins"].get(table_name, {}), **wanted}
    expected["plugins"][table_name] = {key: value for key, value in keys.items() if value is not None}
    present = _with_present_keys(text, table_name, wanted)
    there = before.get("plugins", {}).get(table_name, {})
    missing = {key: value for key, value in wanted.items() if value is not None and key not in there}
    for way in (_below_header, _with_table, _with_tomlkit) if missing else (lambda unchanged, *_: unchanged,):
        try:
            result = way(present, table_name, missing)
            if result is not None and _without_empty(tomllib.loads(result)) == _without_empty(expected):
                return result
        except tomllib.TOMLDecodeError:
            continue
    raise Refusal("an edit would change more than CDI's keys; set enable_cdi = true in it by hand")


def _without_empty(data: Any) -> Any:
    """Without tables that hold nothing: an empty one is the same as none."""
    if not isinstance(data, dict):
        return data
    kept = {key: _without_empty(value) for key, value in data.items()}
    return {key: value for key, value in kept.items() if value != {}}


def _with_version(text: str, number: int) -> str:
    """``version`` as the first key, after the comments that head the file."""
    lines = text.splitlines(keepends=True)
    head = 0
    while head < len(lines) and (not lines[head].strip() or lines[head].lstrip().startswith("#")):
        head += 1
    start = "".join(lines[:head])
    if start and not start.endswith("\n"):
        start += "\n"
    return f"{start}version = {number}\n{''.join(lines[head:])}"


def _with_present_keys(text: str, table_name: str, wanted: Mapping[str, Any]) -> str:
    """Keys that are there get their value, or go."""
    there = _parsed(text).get("plugins", {}).get(table_name, {})
    if all(key not in there or there[key] == value for key, value in wanted.items()):
        return text
    tomlkit = _tomlkit()
    document = tomlkit.parse(text)
    table = document["plugins"][table_name]
    for key, value in wanted.items():
        if key not in there or there[key] == value:
            continue
        if value is None:
            table.remove(key)
        elif not (isinstance(value, list) and _with_items(table[key], value)):
            table[key] = value
    return tomlkit.dumps(document)


def _with_items(array: Any, wanted: list[str]) -> bool:
    """Make a list what is wanted where it stands, with its comments and line ends; whether that worked."""
    if not isinstance(array, list):
        return False
    for position in reversed(range(len(array))):
        if array[position] not in wanted:
            del array[position]
    for position, item in enumerate(wanted):
        if item not in array:
            array.insert(position, item)
    return array == wanted


def _below_header(text: str, table_name: str, missing: Mapping[str, Any]) -> str | None:
    """As the first keys of the table, indented as what follows; None where the table has no header of its own."""
    name = rf"""(?P<quote>["']){re.escape(table_name)}(?P=quote)"""
    header = re.search(rf"(?m)^(?P<indent>[ \t]*)\[\s*plugins\s*\.\s*{name}\s*\][^\n]*$", text)
    if not header:
        return None
    rest = text[header.end() + 1 :]
    following = re.match(r"(?:[ \t]*\n)*([ \t]*)\S", rest)
    indent = following[1] if following and len(following[1]) > len(header["indent"]) else header["indent"]
    lines = "".join(f"{indent}{line}\n" for line in _lines(missing))
    return f"{text[: header.end()]}\n{lines}{rest}"


def _with_table(text: str, table_name: str, missing: Mapping[str, Any]) -> str:
    """In a table of its own at the end, where it touches nothing."""
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return "\n".join([text + gap + f'[plugins."{table_name}"]', *_lines(missing)]) + "\n"


def _with_tomlkit(text: str, table_name: str, missing: Mapping[str, Any]) -> str:
    """Wherever tomlkit puts them: for tables that are written inline or with dotted keys."""
    tomlkit = _tomlkit()
    document = tomlkit.parse(text)
    plugins = document["plugins"]
    if table_name in plugins:
        plugins[table_name].update(missing)
    else:
        plugins[table_name] = dict(missing)
    return tomlkit.dumps(document)


def _lines(keys: Mapping[str, Any]) -> list[str]:
    # TOML writes what we write (true, false, lists of plain texts) as JSON does.
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]


class _UnixLines:
    """A text whose line ends are Windows' throughout is edited with plain ones, and gets its own back."""

    def __init__(self, text: str) -> None:
        self._windows = "\r\n" in text and "\n" not in text.replace("\r\n", "")
        self.value = text.replace("\r\n", "\n") if self._windows else text

    def __enter__(self) -> _UnixLines:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._windows:
            self.value = self.value.replace("\n", "\r\n")


def _tomlkit() -> Any:
    """Only an edit needs it, and bare ansible-core does not bring it."""
    try:
        import tomlkit
    except ImportError:
        raise Refusal(
            "the Python that Ansible runs with on the controller has no tomlkit, which edits it; install "
            "requirements/controller.txt into its environment"
        ) from None
    return tomlkit
