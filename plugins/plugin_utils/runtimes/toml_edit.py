# SPDX-License-Identifier: Apache-2.0
"""Sets keys in one table of a TOML text, and leaves every other byte as it was.

Lines are put in as text where the table has a header or is not there, because tomlkit moves them behind subtables or
drops what they stood before; tomlkit changes values that are there, and tables that are written inline or dotted. What
comes out is parsed and compared with what was wanted, so the choice is never a matter of trust.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from .cdi import Refusal


class UnixLines:
    """A text whose line ends are Windows' throughout is edited with plain ones, and gets its own back."""

    def __init__(self, text: str) -> None:
        self._windows = "\r\n" in text and "\n" not in text.replace("\r\n", "")
        self.value = text.replace("\r\n", "\n") if self._windows else text

    def __enter__(self) -> UnixLines:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._windows:
            self.value = self.value.replace("\n", "\r\n")


def parsed(text: str) -> dict[str, Any]:
    """The text as data. Raises Refusal with line and column where it is not valid TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"it is not valid TOML ({error}); mend it first") from error


def table_of(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A plugin's table; empty where there is none, or something else in its place."""
    plugins = data.get("plugins")
    table = plugins.get(name) if isinstance(plugins, dict) else None
    return table if isinstance(table, dict) else {}


def edited(text: str, table_name: str, wanted: Mapping[str, Any]) -> str:
    """The text with the keys set (removed where they are None), by the first way that changes nothing else.

    text: with plain line ends. table_name: of a table below ``plugins``. Raises Refusal where no way is exact.
    """
    there = table_of(parsed(text), table_name)
    expected = _exact(text)
    plugins = expected.setdefault("plugins", {})
    if not isinstance(plugins, dict) or not isinstance(plugins.setdefault(table_name, {}), dict):
        raise Refusal(f'plugins."{table_name}" in it is not a table; mend it first')
    # Our values are no floats, so they are the same in both readings.
    for key, value in wanted.items():
        plugins[table_name].pop(key, None)
        if value is not None:
            plugins[table_name][key] = value
    present = _with_present_keys(text, table_name, wanted)
    missing = {key: value for key, value in wanted.items() if value is not None and key not in there}
    for way in (_below_header, _with_table, _with_tomlkit) if missing else (lambda unchanged, *_: unchanged,):
        try:
            result = way(present, table_name, missing)
            if result is not None and _same(_exact(result), expected, table_name):
                return result
        except tomllib.TOMLDecodeError:
            continue
    raise Refusal("an edit would change more than CDI's keys; set enable_cdi = true in it by hand")


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


def with_version(text: str, number: int) -> str:
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
    there = table_of(parsed(text), table_name)
    if all(key not in there or there[key] == value for key, value in wanted.items()):
        return text
    kit = tomlkit()
    document = kit.parse(text)
    table = document["plugins"][table_name]
    for key, value in wanted.items():
        if key not in there or there[key] == value:
            continue
        if value is None:
            del table[key]
        elif isinstance(value, list) and "\n" not in table[key].as_string():
            table[key] = _on_one_line(kit, table[key], value)
        elif not (isinstance(value, list) and _with_items(table[key], value)):
            table[key] = value
    return kit.dumps(document)


def _on_one_line(kit: Any, array: Any, wanted: list[str]) -> Any:
    """A list on one line anew, with what stays in it quoted as it was: inserting would lose the blanks."""
    there = {item: item.as_string() for item in array if isinstance(item, str)} if isinstance(array, list) else {}
    items = ", ".join(there.get(item, json.dumps(item)) for item in wanted)
    new = kit.parse(f"_ = [{items}]")["_"]
    new.trivia.comment_ws, new.trivia.comment = array.trivia.comment_ws, array.trivia.comment
    return new


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


def below_header(text: str, table_name: str, lines: list[str]) -> str | None:
    """As the first lines of the table, indented as what follows; None where the table has no header of its own."""
    name = rf"""(?P<quote>["']){re.escape(table_name)}(?P=quote)"""
    header = re.search(rf"(?m)^(?P<indent>[ \t]*)\[\s*plugins\s*\.\s*{name}\s*\][^\n]*$", text)
    if not header:
        return None
    rest = text[header.end() + 1 :]
    following = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*([ \t]*)[^\s#]", rest)
    indent = following[1] if following and len(following[1]) > len(header["indent"]) else header["indent"]
    added = "".join(f"{indent}{line}\n" for line in lines)
    return f"{text[: header.end()]}\n{added}{rest}"


def _below_header(text: str, table_name: str, missing: Mapping[str, Any]) -> str | None:
    return below_header(text, table_name, key_lines(missing))


def _with_table(text: str, table_name: str, missing: Mapping[str, Any]) -> str:
    """In a table of its own at the end, where it touches nothing."""
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return "\n".join([text + gap + f'[plugins."{table_name}"]', *key_lines(missing)]) + "\n"


def _with_tomlkit(text: str, table_name: str, missing: Mapping[str, Any]) -> str:
    """Wherever tomlkit puts them: for tables that are written inline or with dotted keys."""
    kit = tomlkit()
    document = kit.parse(text)
    plugins = document["plugins"]
    if table_name in plugins:
        plugins[table_name].update(missing)
    else:
        plugins[table_name] = dict(missing)
    return kit.dumps(document)


def key_lines(keys: Mapping[str, Any]) -> list[str]:
    # TOML writes what we write (true, false, lists of plain texts) as JSON does.
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]


def tomlkit() -> Any:
    """Only an edit needs it, and bare ansible-core does not bring it."""
    try:
        import tomlkit
    except ImportError:
        raise Refusal(
            "the Python that Ansible runs with on the controller has no tomlkit, which edits it; install "
            "requirements/controller.txt into its environment"
        ) from None
    return tomlkit
