# SPDX-License-Identifier: Apache-2.0
"""Runtime configuration without its secrets: each text in it is replaced by a token before it leaves the node.

A registry's password, a header or a proxy's address can stand under any key, so all texts are hidden but those of the
keys that the controller reads, and comments too. The controller edits a text with tokens, and the node puts the hidden
texts back. The same text has the same token for as long as a play runs. What has no quotes (numbers, true, table names)
stays, and so does each line's number.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.processes import text_of

#: Keys of containerd and CRI-O whose texts the controller reads.
SHOWN = frozenset(
    ("imports", "disabled_plugins", "required_plugins", "cdi_spec_dirs", "default_runtime_name", "runtime_type")
)
#: What only root can read on a node, and what differs between nodes; either may be missing.
_SEEDS = ("/var/lib/systemd/random-seed", "/etc/machine-id")
_LONG_QUOTES = ("'''", '"""')
_TOKEN = re.compile("hidden-[0-9a-f]{24}")
_PARTS = re.compile(
    r"(?P<template>\{\{.*?\}\})"
    r"|(?P<comment>#[^\r\n]*)"
    r'|(?P<long>"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5})'
    r'|(?P<unclosed>""".*|\'\'\'.*)'
    r'|(?P<text>"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<broken>[\"'][^\n]*)"
    r"|(?P<mark>[\n\[\]{}=:,])"
    r"|(?P<bare>[^\s\"'#\[\]{}=:,]+)",
    re.DOTALL,
)
#: What is not a text and has no quotes: numbers, dates, true.
_PLAIN = re.compile(r"[+-]?\d[\w.+-]*|[+-]?(inf|nan)|true|false|null")
#: What may be a secret in a template that is not TOML yet; the one with which it begins is for the controller.
_IN_TEMPLATE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"|`[^`]*`', re.DOTALL)
_BASE_TEMPLATE = re.compile(r'\{\{-?\s*template\s+"[\w.-]+"\s+\.\s*-?\}\}')
#: Only texts like these are searched for in a message: without its paths nobody would understand it.
_SECRET_KEYS = re.compile("auth|cookie|cred|key|pass|proxy|secret|token|user", re.IGNORECASE)
_SECRET_VALUES = re.compile("://[^/]*@")
_SHORTEST = 4


class UnknownToken(ledgers.LedgerConflict):
    """A text has a token whose hidden text is in none of the sources: they changed after they were read."""


class Hidden:
    """The texts that were hidden in some sources, each by its token.

    seeds: the files whose content makes tokens worthless elsewhere; without them a guess could be held to a token.
    """

    def __init__(self, seeds=_SEEDS):
        self._key = b"".join(map(_content_of, seeds))
        self._originals = {}
        self._secrets = set()

    def hide(self, text):
        """A configuration's text with tokens; None stays None."""
        if text is None:
            return None
        place = _Place()
        shown, end = [], 0
        for part in _PARTS.finditer(text):
            kind, found = part.lastgroup, part.group()
            shown.append(text[end : part.start()])
            end = part.end()
            if kind == "comment":
                found = self._whole(found, "# ") if found != "#" else found
            elif kind == "template" and not _BASE_TEMPLATE.fullmatch(found):
                found = _IN_TEMPLATE.sub(lambda inside: self._whole(inside.group()), found)
            elif kind in ("unclosed", "broken") or (kind == "bare" and place.is_hidden and not _PLAIN.fullmatch(found)):
                found = self._whole(found)
            else:
                hidden = kind in ("long", "text") and _value_of(found) and place.is_hidden
                place.move(kind, found)
                if hidden or (kind == "text" and _SECRET_VALUES.search(found)):
                    quote = found[:3] if kind == "long" else found[0]
                    after = found.count("\n") * "\n" + quote
                    found = self._written(found, _value_of(found), quote, after, place.key)
            shown.append(found)
        return "".join([*shown, text[end:]])

    def _whole(self, found, before=""):
        """A token for all of a part, its quotes too."""
        return self._written(found, found, before, found.count("\n") * "\n")

    def _written(self, original, value, before, after, key=""):
        """A token, in the original's quotes.

        The same text has the same token in quotes of both kinds, but not in long ones or in none: beside those may
        stand others' quotes.
        """
        kind = before.replace("'", '"')
        for each in (value, original):
            words = (kind + each).encode("utf-8", "surrogatepass")
            digest = hmac.new(self._key, words, hashlib.sha256).hexdigest()
            token = "hidden-" + digest[:24]
            # The same value can be written in two ways: with an escape, for example.
            if self._originals.setdefault(token, {}).setdefault((before, after), original) == original:
                break
        if len(value) >= _SHORTEST and (_SECRET_KEYS.search(key) or _SECRET_VALUES.search(value)):
            self._secrets.add(value)
        return before + token + after

    def reveal(self, text):
        """The text with what was hidden in its sources; None stays None. Raises UnknownToken."""
        if text is None:
            return None
        revealed, end = [], 0
        for token in _TOKEN.finditer(text):
            # Others' quotes may stand beside it, in a text that is no valid TOML.
            fitting = [
                (before, after)
                for before, after in self._originals.get(token.group(), ())
                if text.endswith(before, end, token.start()) and text.startswith(after, token.end())
            ]
            if not fitting:
                raise UnknownToken("the runtime's configuration changed after it was read; run the play again")
            before, after = max(fitting, key=lambda around: sum(map(len, around)))
            revealed += text[end : token.start() - len(before)], self._originals[token.group()][before, after]
            end = token.end() + len(after)
        return "".join([*revealed, text[end:]])

    def scrub(self, message):
        """A program's message without the hidden texts that look like secrets; None stays None."""
        for value in sorted(self._secrets, key=len, reverse=True) if message else ():
            message = message.replace(value, "(hidden)")
        return message


def hidden_runtime(facts, hidden):
    """Facts of `runtime_facts` as they may leave the node."""
    config = facts.get("config")
    if config is None:
        return facts
    shown = {name: hidden.hide(config.get(name)) for name in ("content", "effective")}
    for name in ("files", "imported"):
        if name in config:
            shown[name] = {path: hidden.hide(text) for path, text in config[name].items()}
    if shown["content"] is not None:
        shown["sha256"] = ledgers.sha256(shown["content"].encode())
    if "problem" in config:
        shown["problem"] = hidden.scrub(config["problem"])
    return dict(facts, config={name: shown.get(name, value) for name, value in config.items()})


def hidden_ledger(entries, owner, hidden):
    """A ledger's entries as they may leave the node.

    owner: of the files whose former texts the controller reads, as tokens; of others it learns that there was a file.
    Their hashes become those of the texts with tokens where the file is as we wrote it.
    """
    shown = {}
    for path, entry in entries.items():
        before = entry.get("before")
        if before and before["kind"] == "file":
            before = {name: value for name, value in before.items() if name != "content"}
            if entry.get("owner") == owner:
                before["content"] = _hidden_content(entry["before"]["content"], hidden)
        shown[path] = dict(entry, before=before) if "before" in entry else entry
        if entry.get("owner") == owner and entry["kind"] == "file":
            text = text_of(path)
            if text is not None and ledgers.sha256(text.encode()) == entry["sha256"]:
                shown[path]["sha256"] = ledgers.sha256(hidden.hide(text).encode())
    return shown


def _hidden_content(content, hidden):
    try:
        text = hidden.hide(base64.b64decode(content).decode("utf-8"))
    except UnicodeDecodeError:
        # A token of nothing: whoever would write it is refused.
        text = "hidden-" + 24 * "0"
    return base64.b64encode(text.encode()).decode("ascii")


class _Place:
    """Where a scan is: below which key, and whether a text there is a value."""

    def __init__(self):
        self._open = []
        self.key = ""
        self._in_value = False

    @property
    def is_hidden(self):
        return self._in_value and self.key not in SHOWN

    def move(self, kind, found):
        """Past a part that is shown."""
        if kind in ("bare", "long", "text") and not self._in_value:
            # Of a dotted key the last part counts.
            self.key = _value_of(found).rpartition(".")[2] if kind == "bare" else _value_of(found)
        elif kind == "mark":
            self._pass(found)

    def _pass(self, mark):
        # In TOML a colon stands in times alone; in what is no TOML, a secret may follow it.
        if mark in "=:":
            if self._in_value:
                # A bracket before it was not closed: whose value this is, nobody knows.
                self.key = ""
            self._in_value = True
        elif mark in "[{":
            # A bracket that opens no value opens a table's name.
            self._open.append("name" if mark == "[" and not self._in_value else mark)
            self._in_value = self._in_value and mark == "["
        elif mark in "]}":
            closed = self._open.pop() if self._open else ""
            self._in_value = closed != "name"
        elif (mark == "\n" and not self._open) or (mark == "," and self._open[-1:] == ["{"]):
            self._in_value = False


def _value_of(original):
    """What a text says, without its quotes."""
    if original.startswith(_LONG_QUOTES):
        return original[3:-3]
    if original[0] not in "\"'":
        return original
    try:
        return str(json.loads(original))
    except ValueError:
        return original[1:-1]


def _content_of(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
