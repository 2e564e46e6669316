"""The remedies in messages, carried out as a person would who has only the message and the files.

Each remedy is a pattern of a message's words, and an edit that takes every name and key from these words. None uses the
collection's own editor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from cases import Case

Files = dict[str, bytes]
#: A valid file where a message says only "fix the file first".
VALID = b"version = 2\n"
_CRI = r"io\.containerd\.(?:grpc\.v1\.cri|cri\.v1\.runtime)"
_CRI_HEADER = rf"""(?m)^[ \t]*\[ *plugins *\. *(?:["']{_CRI}["']|"?cri"?) *\][^\n]*\n?"""


class Remedy(NamedTuple):
    """words: the pattern of a message. edit: gives the files afterwards, from the files, the match and the case."""

    words: str
    edit: Callable[[Files, re.Match[str], Case], Files]


def _changed(case: Case, files: Files, path: str, edit: Callable[[str], str]) -> Files:
    path = case.links.get(path) or case.real(path)
    before = files.get(path, b"").decode()
    after = edit(before)
    assert after != before, f"the remedy changes nothing in {path}"
    return {**files, path: after.encode()}


def _with_keys(text: str, keys: str, header: str | None = None) -> str:
    """A file with ``a = b and c = d`` at the start of the CRI table, and nowhere else. header: the message's."""
    lines = [line for line in re.split(r" and (?=[a-z_]+ = )", keys) if line]
    names = "|".join(line.partition(" = ")[0] for line in lines)
    text = re.sub(rf"(?m)^[ \t]*(?:{names})[ \t]*=[^\n]*\n?", "", text)
    pattern = _CRI_HEADER
    if header:
        name = re.escape(header.removeprefix("[plugins.").strip("]'\""))
        pattern = rf"""(?m)^[ \t]*\[plugins\.["']?{name}["']?\][^\n]*\n?"""
    found = re.search(pattern, text)
    if not found:
        assert header, f"no table of CRI in {text}"
        return "\n".join([text, header, *lines, ""])
    start = text[: found.end()].rstrip("\n") + "\n"
    return "".join([start, *(line + "\n" for line in lines), text[found.end() :]])


def _copied(files: Files, match: re.Match[str], case: Case) -> Files:
    copy = _with_keys(files[match["source"]].decode(), match["keys"], match["header"]).encode()
    # k3s makes its root file from the template, which has no actions now.
    return {**files, match["target"]: copy, case.config: copy}


def _in_template(files: Files, match: re.Match[str], case: Case) -> Files:
    files = _changed(case, files, match["path"], lambda text: _with_keys(text, match["keys"], match["header"]))
    return {**files, case.config: case.generated(files)}


def _in_files(files: Files, match: re.Match[str], case: Case) -> Files:
    for keys, path in re.findall(r"((?:[a-z_]+ = (?:true|\[[^\]]*\])(?: and )?)+) in (/[^\s,]+)", match[0]):
        files = _changed(case, files, path, lambda text, keys=keys: _with_keys(text, keys))
    return files


def _with_version_2(files: Files, _match: re.Match[str], case: Case) -> Files:
    return _root(_changed(case, files, _source(case), lambda text: f"version = 2\n{text}"), case)


def _without_disabled(files: Files, match: re.Match[str], case: Case) -> Files:
    def edit(text: str) -> str:
        for name in match["names"].split(", "):
            text = re.sub(rf"""(?m)(^disabled_plugins[^\]]*?)["']{re.escape(name)}["'],?""", r"\1", text)
        return text

    path = _source(case) if match["path"] == case.config else match["path"]
    return _root(_changed(case, files, path, edit), case)


def _import_removed(files: Files, match: re.Match[str], case: Case) -> Files:
    """The import may be relative."""
    name = match["file"].rpartition("/")[2]
    return _changed(
        case, files, match["path"], lambda text: re.sub(rf"""["'][^"',]*{re.escape(name)}["'],?""", "", text)
    )


def _import_created(files: Files, match: re.Match[str], case: Case) -> Files:
    return {**files, case.links.get(match["file"], match["file"]): b""}


def _one_table(files: Files, match: re.Match[str], case: Case) -> Files:
    """Move the keys of the shorter name's table into the other."""
    path = case.config if match["path"] == "the file" else match["path"]

    def edit(text: str) -> str:
        short = re.search(r"(?m)^\[plugins\.cri\]\n((?:(?!\[)[^\n]*\n?)*)", text)
        rest = text[: short.start()] + text[short.end() :]
        for line in filter(None, map(str.strip, short[1].splitlines())):
            rest = _with_keys(rest, line, '[plugins."io.containerd.grpc.v1.cri"]')
        return rest

    return _changed(case, files, path, edit)


def _other_runtime(files: Files, match: re.Match[str], case: Case) -> Files:
    """Name one of the runtimes that there are."""
    other = match["there"].split(", ")[0]
    for path in sorted(files, reverse=True):
        text = files[path].decode()
        named = re.sub(r"(default_runtime_name = )[^\n]*", rf'\1"{other}"', text)
        if named != text:
            return {**files, path: named.encode()}
    # It is the default: set it in the table that decides.
    return _changed(
        case, files, _deciding(files, case), lambda text: _in_containerd(text, f'default_runtime_name = "{other}"')
    )


def _runtime_added(files: Files, match: re.Match[str], case: Case) -> Files:
    added = f'runtimes.{match["name"]}.runtime_type = "io.containerd.runc.v2"'
    path = _deciding(files, case) if "to the last import" in match[0] else match["path"]
    return _changed(case, files, path, lambda text: _in_containerd(text, added))


def _deciding(files: Files, case: Case) -> str:
    """The last import with a CRI table, or the root file."""
    others = [path for path, text in sorted(files.items()) if path != case.config and re.search(_CRI, text.decode())]
    return others[-1] if others else case.config


def _in_containerd(text: str, line: str) -> str:
    """A key of the table containerd below CRI's."""
    header = re.search(rf"""(?m)^[ \t]*\[plugins\.["']{_CRI}["']\.containerd\][^\n]*\n""", text)
    if header:
        return f"{text[: header.end()]}{line}\n{text[header.end() :]}"
    return f'{text}\n[plugins."io.containerd.grpc.v1.cri".containerd]\n{line}\n'


def _separate_directory(files: Files, match: re.Match[str], case: Case) -> Files:
    return _changed(case, files, case.config, lambda text: text.replace(match["glob"], "conf.d/*.toml"))


def _fixed(files: Files, match: re.Match[str], case: Case) -> Files:
    """Nothing says what is wrong with it but containerd, so it is replaced by a valid one."""
    path = match.groupdict().get("path") or case.config
    path = path if path.startswith("/") else next(name for name in files if name.endswith(path))
    return _root({**files, _source(case): VALID} if path == case.config else {**files, path: b""}, case)


def _source(case: Case) -> str:
    return case.generator or case.config


def _root(files: Files, case: Case) -> Files:
    return {**files, case.config: case.generated(files)} if case.generator else files


_KEYS = r"(?P<keys>[a-z_]+ = (?:true|\[[^\]]*\])(?: and [a-z_]+ = \[[^\]]*\])?)"
REMEDIES = {
    "copy the generated file": Remedy(
        rf"copy (?P<source>\S+) to (?P<target>\S+), set {_KEYS} below (?P<header>\[plugins\.[^\]]+\]) in the copy",
        _copied,
    ),
    "edit the template": Remedy(
        rf"(?P<path>\S+) already has [^:]*: set {_KEYS} below (?P<header>\[plugins\.[^\]]+\]) there, and nowhere else",
        _in_template,
    ),
    "edit the imports": Remedy(rf": set {_KEYS} in /.*", _in_files),
    "set the version": Remedy(r"set version = 2 before the first table", _with_version_2),
    "enable CRI": Remedy(
        r"(?P<path>\S+) disables CRI \(disabled_plugins has (?P<names>[^)]*)\).*remove it from disabled_plugins",
        _without_disabled,
    ),
    "remove the import": Remedy(
        r"(?P<path>\S+) imports (?P<file>\S+), which is not a file.*: remove it from imports", _import_removed
    ),
    "create the import": Remedy(r"imports (?P<file>\S+), which is .*, or create the file", _import_created),
    "join the tables": Remedy(
        r"(?P<path>\S+|the file) has \[plugins\.cri\] and .*: move the keys of .*, and remove", _one_table
    ),
    "add the runtime": Remedy(
        r"(?P<path>\S+?)(?: sets|:) CRI's default_runtime_name .*: add the runtime (?P<name>\S+?)[ ,].*", _runtime_added
    ),
    "name another runtime": Remedy(
        r"but its runtimes are (?P<there>.*?), so CRI .*, or set default_runtime_name to one", _other_runtime
    ),
    "import another directory": Remedy(
        r"its import (?P<glob>\S+) matches the file itself.*: import a separate directory, such as conf\.d/\*\.toml",
        _separate_directory,
    ),
    "fix the import": Remedy(
        r"(?P<path>/?\S+\.toml)(?:, which \S+ imports|\s\(imported\)|(?= is not UTF-8 and may))"
        r".*: fix the (?:file|import) first",
        _fixed,
    ),
    "fix the file": Remedy(r"fix the file (?:or one of its imports )?first", _fixed),
}


def remedies(message: str) -> list[tuple[str, re.Match[str]]]:
    """The remedies that a message has, by name. A broken import is not the root file."""
    found = [(name, match) for name, each in REMEDIES.items() if (match := re.search(each.words, message))]
    named = {name for name, _match in found}
    return [(name, match) for name, match in found if name != "fix the file" or "fix the import" not in named]


def carried_out(files: Files, name: str, match: re.Match[str], case: Any) -> Files:
    return REMEDIES[name].edit(files, match, case)
