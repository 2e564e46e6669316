"""Reads the imports of a containerd configuration, finds those that override CDI's keys, and compares staged copies."""

from __future__ import annotations

import copy
import fnmatch
import glob
import json
import os
import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...declaration.cdi import always_on, version_tuple
from ...support.bounded_reads import text_of
from . import containerd_config
from .cdi import SPEC_DIRS, STAGED_DROP_IN, Cdi, UnsupportedConfig, differences
from .containerd_config import texts_in
from .toml_edit import key_lines, lenient, parsed
from .toml_text import statements

#: The name of our drop-in. It sorts after usual names, so that no file of the directory overrides the drop-in.
DROP_IN = "zz-node-devices.toml"
#: Wildcards in a pattern.
_WILD = set("*?[\\")


class Imports(NamedTuple):
    """The files that a root file imports, directly or indirectly.

    texts: by path, in containerd's order. links: paths of files that are links. unreadable: paths of files that are not
    UTF-8. missing: the importing file, the imported path that is no file, its kind, and a fix. containerd cannot start
    with such an import.
    """

    texts: dict[str, str]
    links: list[str]
    unreadable: list[str]
    missing: list[tuple[str, str, str, str]]

    @property
    def paths(self) -> list[str]:
        return [*self.texts, *self.unreadable, *(path for _parent, path, *_ in self.missing)]


def read(config: Mapping[str, Any]) -> Imports:
    """Read the imports of a root file. config: the runtime's ``config``.

    `config dump` is no source: it omits the directories of nested imports, and in 2.2 and later it may name a directory
    that the root file does not import.
    """
    imports = Imports({}, [], [], [])
    seen = {config["path"], os.path.realpath(config["path"])}
    pending = [(config["path"], lenient(config["content"] or ""))]
    while pending:
        parent, data = pending.pop(0)
        names = list(dict.fromkeys(absolute(data, parent)))
        for name in names:
            if "*" not in name and not os.path.isfile(name):
                imports.missing.append((parent, name, "not a file", "remove it from imports, or create the file"))
        for file in dict.fromkeys(file for name in names for file in _found(name)):
            if not os.path.exists(file):
                imports.missing.append((parent, file, "a dangling link", "remove it, or create the file"))
            elif os.path.isdir(file) and file not in names:
                imports.missing.append((parent, file, "a directory", "remove it"))
            elif file not in seen and os.path.isfile(file):
                seen.add(file)
                text = text_of(file)
                if text is None:
                    imports.unreadable.append(file)
                    continue
                imports.texts[file] = text
                imports.links.extend([file] if os.path.islink(file) else [])
                pending.append((file, lenient(text)))
    return imports


def _found(pattern: str) -> list[str]:
    """Return the files that containerd finds for a pattern. containerd reads a pattern without a star as a path.

    Go's patterns also match names that begin with a dot.
    """
    if "*" not in pattern:
        return [pattern] if os.path.exists(pattern) else []
    directory = os.path.dirname(pattern).replace("[^", "[!")
    directories = glob.glob(directory) if set(directory) & _WILD else [directory]
    paths = [os.path.join(each, name) for each in directories if os.path.isdir(each) for name in os.listdir(each)]
    return sorted(path for path in paths if _matches(path, pattern))


def unexpected_changes(before: str, after: str, *paths: str) -> list[str]:
    """Return the key paths in which two outputs of ``config dump`` differ, without the wanted keys.

    paths: of both root files. They are ignored among the imports, because ``config dump`` lists the root file there.
    """
    return differences(_normal(before, paths), _normal(after, paths))


def _normal(dump: str, paths: tuple[str, ...]) -> dict[str, Any]:
    data = copy.deepcopy(containerd_config.printed(dump))
    # containerd 1.7 prints the imported files in random order. containerd 2 prints the names as in the file, such as
    # relative paths or patterns.
    data["imports"] = sorted(name for name in absolute(data, paths[0]) if name not in paths)
    table = containerd_config.cri_table(data)
    for key in containerd_config.KEYS:
        table.pop(key, None)
    return data


def data_of(path: str, text: str) -> dict[str, Any]:
    """Return an imported file as data. For invalid TOML, raises UnsupportedConfig with the file's path."""
    try:
        return parsed(text)
    except UnsupportedConfig as error:
        raise UnsupportedConfig(f"{path} (imported): {error}") from error


def overridden(texts: Mapping[str, str], version: str, wanted: Mapping[str, Any]) -> str:
    """Return why an edit of a root file has no effect, and the fix.

    texts: of the root file's imports, by path. wanted: the CDI keys that the edit would set.
    """
    tables = {path: containerd_config.cri_table(data_of(path, text)) for path, text in sorted(texts.items())}
    if not any(tables.values()):
        keys = " and ".join(key_lines(wanted))
        return (
            f"an edit of this file has no effect on containerd: set {keys} by hand, then check the effect with "
            "`containerd config dump`"
        )
    is_always_on = always_on(version)
    whole = version_tuple(version) < (2, 0, 0)
    advice = []
    for path, table in tables.items():
        enabled = is_always_on or bool(table.get(containerd_config.ENABLE, not whole))
        there = Cdi(enabled, tuple(table.get(containerd_config.DIRS, SPEC_DIRS)))
        # Before 2.0, an imported table replaces the root file's table. From 2.0 on, the imported keys override the root
        # file's keys.
        if not table or there.suffices:
            continue
        advice.append(f"{' and '.join(key_lines(containerd_config.wanted_keys(there)))} in {path}")
    by = "an imported CRI table replaces the file's own" if whole else "its imports override it"
    what = "turning CDI on" if containerd_config.ENABLE in wanted else "listing the CDI directories"
    return f"{what} in this file has no effect, because {by}: set {', '.join(advice) or 'the same keys in its imports'}"


def staged(content: str, path: str, real_path: str, texts: Mapping[str, str], drop_in: str | None) -> str:
    """Return the text of an equivalent copy with another name. Raises UnsupportedConfig.

    The copy must not import the file itself, because the file's old text would override the copy's new text.
    texts: of the imports, by path. drop_in: the import that the copy replaces by STAGED_DROP_IN, or else has as its
    last import; None for no such import.
    """
    data = parsed(content)
    given_names = texts_in(data, "imports")
    names = absolute(data, path)
    for given, name in zip(given_names, names):
        if any(_matches(file, name) for file in (path, real_path)):
            raise UnsupportedConfig(
                f"its import {given} matches the file itself, so a change cannot be checked before it is written: "
                "import a separate directory, such as conf.d/*.toml"
            )
    if drop_in in texts:
        wanted = [STAGED_DROP_IN if file == drop_in else file for file in _in_order(data, path, texts)]
    else:
        wanted = [given for given, name in zip(given_names, names) if name not in (path, real_path)]
        wanted += [STAGED_DROP_IN] if drop_in else []
    return content if wanted == given_names else _with_imports(content, wanted)


def place_of_drop_in(content: str, path: str, texts: Mapping[str, str]) -> str | None:
    """Return a path at which containerd 2 reads our drop-in last, or None. texts: the root file's imports by path."""
    names = absolute(parsed(content), path)
    if not names or _nested(texts):
        return None
    directory, pattern = posixpath.split(names[-1])
    if set(directory) & _WILD:
        return None
    alike = DROP_IN if set(pattern) & _WILD - {"*"} else pattern.replace("*", DROP_IN.removesuffix(".toml"))
    for name in (DROP_IN, alike, f"99-{DROP_IN}"):
        place = posixpath.join(directory, name)
        # Reject the path if an earlier import also matches it.
        order = _in_order(parsed(content), path, {**texts, place: ""})
        if _matches(place, names[-1]) and order[-1] == place:
            return place
    return None


def deciding(texts: Mapping[str, str]) -> list[str]:
    """Return the imports with a CRI table in reverse order. texts: of the root file's imports, in containerd's order.

    The last import overrides the other imports. containerd 1.7 uses only the last import.
    """
    if _nested(texts):
        return []
    return [file for file in reversed(list(texts)) if containerd_config.cri_table(data_of(file, texts[file]))]


def _with_imports(content: str, names: list[str]) -> str:
    """Return the text with other imports. Raises UnsupportedConfig if the text has no imports."""
    for statement in statements(content):
        if statement.path == ("imports",) and statement.value:
            start, end = statement.value
            return content[:start] + json.dumps(names) + content[end:]
    raise UnsupportedConfig("the file has no imports")


def _nested(texts: Mapping[str, str]) -> bool:
    """Return whether an imported file has imports."""
    return any(texts_in(data_of(path, text), "imports") for path, text in texts.items())


def _in_order(data: Mapping[str, Any], path: str, texts: Mapping[str, str]) -> list[str]:
    """Return the paths in ``texts`` that the file imports directly, in containerd's order."""
    names = absolute(data, path)
    found = [file for name in names for file in sorted(texts) if file == name or _matches(file, name)]
    # containerd reads each file only once.
    return list(dict.fromkeys(found))


def absolute(data: Mapping[str, Any], path: str) -> list[str]:
    """Return the file's imports as absolute paths. Relative paths begin in the file's directory."""
    directory = posixpath.dirname(path)
    return [posixpath.normpath(posixpath.join(directory, name)) for name in texts_in(data, "imports")]


def _matches(path: str, pattern: str) -> bool:
    """Return whether a path matches an import by containerd's rules. A star does not match a slash."""
    go = pattern.replace("[^", "[!")
    return "*" in pattern and pattern.count("/") == path.count("/") and fnmatch.fnmatchcase(path, go)
