# SPDX-License-Identifier: Apache-2.0
"""Sets keys in one plugin's table of a TOML text, and leaves every other byte as it was.

Lines are put in, changed and taken out as text: tomlkit loses keys where dotted ones are removed, and moves or breaks
tables that are out of order (test_toml_edit.py has such documents). It edits values that are lists
over several lines or inline tables, each alone. What comes out is parsed and compared with what was wanted, so nothing
is a matter of trust.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from .cdi import UnsupportedConfig
from .toml_text import Statement, statements

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def keeps_line_ends(edit: Callable[..., str]) -> Callable[..., str]:
    """A method that edits a text with plain line ends; where they are Windows' throughout, the text gets these back."""

    @functools.wraps(edit)
    def edit_plain(self: Any, text: str, *more: Any) -> str:
        if "\r\n" not in text or "\n" in text.replace("\r\n", ""):
            return edit(self, text, *more)
        return edit(self, text.replace("\r\n", "\n"), *more).replace("\n", "\r\n")

    return edit_plain


def parsed(text: str) -> dict[str, Any]:
    """The text as data. Raises UnsupportedConfig with line and column where it is not valid TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnsupportedConfig(f"it is not valid TOML ({error}); fix it first") from error


def lenient(text: str) -> dict[str, Any]:
    """The text as data; nothing of one that is not valid, which the runtime itself has refused."""
    try:
        return parsed(text)
    except UnsupportedConfig:
        return {}


def edited(text: str, table_name: str, wanted: Mapping[str, Any]) -> str:
    """The text with the keys set, removed where they are None.

    text: with plain line ends. table_name: of a table below ``plugins``. Raises UnsupportedConfig where that cannot be
    done without changing anything else.
    """
    parsed(text)
    expected = _exact(text)
    plugins = expected.setdefault("plugins", {})
    if not isinstance(plugins, dict) or not isinstance(plugins.setdefault(table_name, {}), dict):
        raise UnsupportedConfig(f'plugins."{table_name}" in it is not a table; fix it first')
    result = text
    # The last first: each new one is put before those that are there.
    for key, value in reversed(wanted.items()):
        there = plugins[table_name].pop(key, None)
        if value is not None:
            plugins[table_name][key] = value
        if there != value:
            result = _set(result, ("plugins", table_name), key, value)
    try:
        if _same(_exact(result), expected, table_name):
            return result
    except tomllib.TOMLDecodeError:
        pass
    lines = key_lines({key: value for key, value in wanted.items() if value is not None})
    raise UnsupportedConfig(
        f"an edit would change more than CDI's keys; have {' and '.join(lines) or 'neither of them'} below "
        f'[plugins."{table_name}"] in it by hand'
    )


def lines_of(text: str) -> list[str]:
    """With their ends, which a line feed alone is: splitlines() would cut at others of Unicode's, too."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def with_version(text: str, number: int) -> str:
    """``version`` as the first key, after the comments that head the file."""
    lines = lines_of(text)
    head = 0
    while head < len(lines) and (not lines[head].strip() or lines[head].lstrip().startswith("#")):
        head += 1
    start = "".join(lines[:head])
    return f"{_ended(start)}version = {number}\n{''.join(lines[head:])}"


def key_lines(keys: Mapping[str, Any]) -> list[str]:
    """``key = value`` of each."""
    # TOML writes what we write (true, false, lists of plain texts) as JSON does.
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]


def indent_below(header_indent: str, rest: str) -> str:
    """The indent of a table's first key: that of what follows its header, if it is deeper."""
    following = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*([ \t]*)[^\s#]", rest)
    return following[1] if following and len(following[1]) > len(header_indent) else header_indent


def tomlkit() -> Any:
    """Few edits need it, and bare ansible-core does not bring it."""
    try:
        import tomlkit
    except ImportError:
        raise UnsupportedConfig(
            "the Python that Ansible runs with on the controller has no tomlkit, which edits it; install "
            "requirements/controller.txt into its environment"
        ) from None
    return tomlkit


def _exact(text: str) -> dict[str, Any]:
    """As data, with floats as they are written: nan is not even itself."""
    return tomllib.loads(text, parse_float=str)


def _same(one: dict[str, Any], other: dict[str, Any], table_name: str) -> bool:
    """Whether two documents say the same; that our table is there and empty says nothing."""
    for data in (one, other):
        plugins = data.get("plugins")
        if isinstance(plugins, dict):
            if plugins.get(table_name) == {}:
                del plugins[table_name]
            if not plugins:
                del data["plugins"]
    return one == other


def _set(text: str, table: tuple[str, str], key: str, value: Any) -> str:
    """With one key set, where it is or where it fits best; without it, if the value is None."""
    path = (*table, key)
    header = sibling = None
    for statement in statements(text):
        if statement.path is None:
            continue
        if statement.value is None:
            header = statement if statement.path == table else header
        elif statement.path == path and value is None:
            return text[: statement.start] + text[statement.end :]
        elif statement.path == path[: len(statement.path)]:
            start, end = statement.value
            return text[:start] + _value(text[start:end], path[len(statement.path) :], value) + text[end:]
        elif statement.path[: len(table)] == table and len(statement.header or ()) < len(table):
            sibling = statement
    if value is None:
        return text
    (line,) = key_lines({key: value})
    if header:
        before, after = _ended(text[: header.end]), text[header.end :]
        indent = indent_below(_indent(text, header), after)
        return f"{before}{indent}{line}\n{after}"
    if sibling:
        prefix = text[sibling.start : sibling.part_ends[len(table) - len(sibling.header or ()) - 1]]
        return f"{_ended(text[: sibling.end])}{prefix}.{line}\n{text[sibling.end :]}"
    gap = "" if not text or text.endswith("\n\n") else "\n"
    name = table[1] if _BARE.fullmatch(table[1]) else json.dumps(table[1])
    return f"{_ended(text)}{gap}[plugins.{name}]\n{line}\n"


def _indent(text: str, statement: Statement) -> str:
    return re.match(r"[ \t]*", text[statement.start :])[0]


def _ended(text: str) -> str:
    """With a line end at its end, if it has anything."""
    return text if not text or text.endswith("\n") else text + "\n"


def _value(old: str, below: tuple[str, ...], value: Any) -> str:
    """A value as written, with another value; below: keys inside it, where it is an inline table."""
    if below:
        return _inline(old, below, value)
    if not isinstance(value, list) or not old.startswith("["):
        return json.dumps(value)
    document = tomlkit().parse(f"_ = {old}\n")
    array = document["_"]
    if "\n" in old:
        # In its place, with its comments.
        for position in reversed(range(len(array))):
            if array[position] not in value:
                del array[position]
        for position, item in enumerate(value):
            if item not in array:
                array.insert(position, item)
        return document.as_string()[len("_ = ") :].rstrip("\n")
    # On one line anew, with what stays in it quoted as it was: inserting would lose the blanks.
    there = {item: item.as_string() for item in array if isinstance(item, str)}
    return f"[{', '.join(there.get(item, json.dumps(item)) for item in value)}]"


def _inline(old: str, below: tuple[str, ...], value: Any) -> str:
    """An inline table as written, with a key in it set or removed."""
    document = tomlkit().parse(f"_ = {old}\n")
    table = document["_"]
    for name in below[:-1]:
        if name not in table:
            table[name] = tomlkit().inline_table()
        table = table[name]
    if value is None:
        table.pop(below[-1], None)
    else:
        table[below[-1]] = value
    return document.as_string()[len("_ = ") :].rstrip("\n")
