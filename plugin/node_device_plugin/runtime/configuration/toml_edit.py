"""Sets keys in one plugin's table of a TOML text. All other bytes stay unchanged.

Lines are inserted, changed and removed as text, and tomlkit edits only multi-line lists and inline tables. The reason:
tomlkit loses keys if dotted keys are removed, and moves or breaks tables that are out of order (see test_toml_edit.py).
The result is parsed and compared with the expected document.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from ...support.toml import TomlError, document
from .cdi import UnsupportedConfig
from .toml_text import statements

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def parsed(text: str) -> dict[str, Any]:
    """Return the text as data, see ``document``. For invalid TOML, raises UnsupportedConfig with line and column."""
    try:
        return document(text)
    except TomlError as error:
        raise UnsupportedConfig(f"not valid TOML ({error}): fix the file first") from error


def lenient(text: str) -> dict[str, Any]:
    """Return the text as data; {} for invalid TOML, about which the runtime reports an error."""
    try:
        return parsed(text)
    except UnsupportedConfig:
        return {}


def edited(text: str, table_name: str, wanted: Mapping[str, Any], version: int | None = None) -> str:
    """Return the text with the keys set. A key with the value None is removed.

    table_name: a table below ``plugins``. version: set it as the first key; None for no change. A text with only
    Windows line ends keeps them. Raises UnsupportedConfig if the edit would change other keys.
    """
    if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
        return edited(text.replace("\r\n", "\n"), table_name, wanted, version).replace("\n", "\r\n")
    parsed(text)
    if version is not None:
        text = _with_version(text, version)
    expected = copy.deepcopy(document(text))
    plugins = expected.setdefault("plugins", {})
    if not isinstance(plugins, dict) or not isinstance(plugins.setdefault(table_name, {}), dict):
        raise UnsupportedConfig(f'plugins."{table_name}" is not a table: fix the file first')
    result = text
    # Use the reverse order, because each new key is inserted before the existing keys.
    for key, value in reversed(list(wanted.items())):
        there = plugins[table_name].pop(key, None)
        if value is not None:
            plugins[table_name][key] = value
        if there != value:
            result = with_key(result, ("plugins", table_name), key, value)
    try:
        if _same(copy.deepcopy(document(result)), expected, table_name):
            return result
    except TomlError:
        pass
    lines = key_lines({key: value for key, value in wanted.items() if value is not None})
    raise UnsupportedConfig(
        "an edit would change more than the CDI keys: edit the file by hand, so that it has "
        f'{" and ".join(lines) or "neither key"} below [plugins."{table_name}"]'
    )


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends. Only a line feed ends a line; splitlines() also splits at other characters."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _with_version(text: str, number: int) -> str:
    """Return the text with ``version`` as the first key, after the comments at the start."""
    head = re.match(r"(?:[ \t]*(?:#[^\n]*)?(?:\n|\Z))*", text).end()
    return f"{_ended(text[:head])}version = {number}\n{text[head:]}"


def key_lines(keys: Mapping[str, Any]) -> list[str]:
    """Return a line ``key = value`` for each key."""
    # Booleans and lists of plain strings look the same in JSON and TOML.
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]


def header(table_name: str) -> str:
    """Return the header of a plugin's table."""
    return f"[plugins.{table_name if _BARE.fullmatch(table_name) else json.dumps(table_name)}]"


def indent_below(header_indent: str, rest: str) -> str:
    """Return the indent of a table's first key: the deeper one of the header's and the next line's indents."""
    following = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*([ \t]*)[^\s#]", rest)
    return following[1] if following and len(following[1]) > len(header_indent) else header_indent


def _same(one: dict[str, Any], other: dict[str, Any], table_name: str) -> bool:
    """Return whether two documents are equal. An empty table with our name counts as missing."""
    for data in (one, other):
        plugins = data.get("plugins")
        if isinstance(plugins, dict):
            if plugins.get(table_name) == {}:
                del plugins[table_name]
            if not plugins:
                del data["plugins"]
    return one == other


def with_key(text: str, table: tuple[str, str], key: str, value: Any) -> str:
    """Return the text with a key set in its old position or in the best new position; None removes the key."""
    path = (*table, key)
    our_header = sibling = None
    for statement in statements(text):
        if statement.path is None:
            continue
        if statement.value is None:
            our_header = statement if statement.path == table else our_header
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
    if our_header:
        before, after = _ended(text[: our_header.end]), text[our_header.end :]
        indent = indent_below(re.match(r"[ \t]*", text[our_header.start :])[0], after)
        return f"{before}{indent}{line}\n{after}"
    if sibling:
        prefix = text[sibling.start : sibling.part_ends[len(table) - len(sibling.header or ()) - 1]]
        return f"{_ended(text[: sibling.end])}{prefix}.{line}\n{text[sibling.end :]}"
    gap = "" if not text or text.endswith("\n\n") else "\n"
    return f"{_ended(text)}{gap}{header(table[1])}\n{line}\n"


def _ended(text: str) -> str:
    """Return the text with a final line end. An empty text stays empty."""
    return text if not text or text.endswith("\n") else text + "\n"


def _value(old: str, below: tuple[str, ...], value: Any) -> str:
    """Return a value's new text. below: if the value is an inline table, path of the key in that table."""
    if below:
        return _inline(old, below, value)
    if not isinstance(value, list) or not old.startswith("["):
        return json.dumps(value)
    # Import tomlkit only here and below, because few edits need it.
    import tomlkit

    document = tomlkit.parse(f"_ = {old}\n")
    array = document["_"]
    if "\n" in old:
        # Keep the list's layout and comments.
        for position in reversed(range(len(array))):
            if array[position] not in value:
                del array[position]
        for position, item in enumerate(value):
            if item not in array:
                array.insert(position, item)
        return document.as_string()[len("_ = ") :].rstrip("\n")
    # Rewrite a one-line list and keep the items' quotes, because tomlkit's insert loses the spaces.
    there = {item: item.as_string() for item in array if isinstance(item, tomlkit.items.String)}
    return f"[{', '.join(there.get(item, json.dumps(item)) for item in value)}]"


def _inline(old: str, below: tuple[str, ...], value: Any) -> str:
    """Set or remove a key in an inline table's text."""
    import tomlkit

    document = tomlkit.parse(f"_ = {old}\n")
    table = document["_"]
    for name in below[:-1]:
        if name not in table:
            table[name] = tomlkit.inline_table()
        table = table[name]
    if value is None:
        table.pop(below[-1], None)
    else:
        table[below[-1]] = value
    return document.as_string()[len("_ = ") :].rstrip("\n")
