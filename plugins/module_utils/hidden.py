# SPDX-License-Identifier: Apache-2.0
"""Replaces each string of a runtime configuration by a token, so that no secret leaves the node.

Any key can have a secret value such as a password, a header or a proxy address. Therefore tokens replace all comments
and all strings, except strings that the controller reads. The controller edits the text with tokens, and the node
restores the strings. Equal strings have equal tokens while a play runs. Unquoted values (numbers, true, table names)
and line numbers do not change.

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

#: Keys of containerd and CRI-O whose strings the controller reads.
SHOWN = frozenset(
    ("imports", "disabled_plugins", "required_plugins", "cdi_spec_dirs", "default_runtime_name", "runtime_type")
)
#: Files whose content is the tokens' key. Only root can read the first; the second differs between nodes. Either may be
#: missing.
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
#: Unquoted values that are not strings: numbers, dates, true.
_PLAIN = re.compile(r"[+-]?\d[\w.+-]*|[+-]?(inf|nan)|true|false|null")
#: Matches comments and strings of a Go template, which may be secrets.
_IN_TEMPLATE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"|`[^`]*`', re.DOTALL)
#: Matches a base template's call. No token replaces the call, because the controller reads it.
_BASE_TEMPLATE = re.compile(r'\{\{-?\s*template\s+"[\w.-]+"\s+\.\s*-?\}\}')
#: Keys whose strings are also removed from messages. Other strings stay, because messages need their paths.
_SECRET_KEYS = re.compile("auth|cookie|cred|key|pass|proxy|secret|token|user", re.IGNORECASE)
_SECRET_VALUES = re.compile("://[^/]*@")
_SHORTEST = 4


class UnknownToken(ledgers.LedgerConflict):
    """A text contains an unknown token, because a source changed after the node read it."""


class Hidden:
    """Maps each token to its hidden string.

    seeds: files whose content is the tokens' key. Without the key, nobody can check a guessed string against a token.
    """

    def __init__(self, seeds=_SEEDS):
        self._key = b"".join(map(_content_of, seeds))
        self._originals = {}
        self._secrets = set()

    def hide(self, text):
        """Return a configuration's text with tokens; None stays None."""
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
        """Return a token that replaces a complete part, including its quotes."""
        return self._written(found, found, before, found.count("\n") * "\n")

    def _written(self, original, value, before, after, key=""):
        """Return a token in the original's quotes.

        A string has the same token in single and in double quotes. In triple quotes or without quotes, the string has
        another token, because quotes of another string may be beside it.
        """
        kind = before.replace("'", '"')
        for each in (value, original):
            words = (kind + each).encode("utf-8", "surrogatepass")
            digest = hmac.new(self._key, words, hashlib.sha256).hexdigest()
            token = "hidden-" + digest[:24]
            # Two spellings of one value, for example with an escape, need two tokens.
            if self._originals.setdefault(token, {}).setdefault((before, after), original) == original:
                break
        if len(value) >= _SHORTEST and (_SECRET_KEYS.search(key) or _SECRET_VALUES.search(value)):
            self._secrets.add(value)
        return before + token + after

    def reveal(self, text):
        """Return the text with strings instead of tokens; None stays None. Raises UnknownToken."""
        if text is None:
            return None
        revealed, end = [], 0
        for token in _TOKEN.finditer(text):
            # In invalid TOML, quotes of another string may be beside the token.
            fitting = [
                (before, after)
                for before, after in self._originals.get(token.group(), ())
                if text.endswith(before, end, token.start()) and text.startswith(after, token.end())
            ]
            if not fitting:
                raise UnknownToken("the runtime's configuration changed after it was read: run the play again")
            before, after = max(fitting, key=lambda around: sum(map(len, around)))
            revealed += text[end : token.start() - len(before)], self._originals[token.group()][before, after]
            end = token.end() + len(after)
        return "".join([*revealed, text[end:]])

    def scrub(self, message):
        """Return a program's message without the hidden strings of secret keys and URLs; None stays None."""
        for value in sorted(self._secrets, key=len, reverse=True) if message else ():
            message = message.replace(value, "(hidden)")
        return message


def hidden_runtime(facts, hidden):
    """Return the facts of `runtime_facts` without secrets."""
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
    """Return a ledger's entries without secrets.

    owner: the owner whose files keep their former contents, with tokens. If such a file is unchanged since we wrote it,
    its hash becomes the hash of the text with tokens.
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
        # No string has this token, so the node cannot write the text back.
        text = "hidden-" + 24 * "0"
    return base64.b64encode(text.encode()).decode("ascii")


class _Place:
    """The state of a scan: the current key, and whether a string at this position is a value."""

    def __init__(self):
        self._open = []
        self.key = ""
        self._in_value = False

    @property
    def is_hidden(self):
        return self._in_value and self.key not in SHOWN

    def move(self, kind, found):
        """Update the state after a key, a string or a punctuation mark."""
        if kind in ("bare", "long", "text") and not self._in_value:
            # Only the last part of a dotted key counts.
            self.key = _value_of(found).rpartition(".")[2] if kind == "bare" else _value_of(found)
        elif kind == "mark":
            self._pass(found)

    def _pass(self, mark):
        # In formats other than TOML, a secret may follow a colon.
        if mark in "=:":
            if self._in_value:
                # The value's key is unknown, because an earlier bracket was not closed.
                self.key = ""
            self._in_value = True
        elif mark in "[{":
            # A bracket outside a value opens a table name.
            self._open.append("name" if mark == "[" and not self._in_value else mark)
            self._in_value = self._in_value and mark == "["
        elif mark in "]}":
            closed = self._open.pop() if self._open else ""
            self._in_value = closed != "name"
        elif (mark == "\n" and not self._open) or (mark == "," and self._open[-1:] == ["{"]):
            self._in_value = False


def _value_of(original):
    """Return a string's value without quotes and escapes."""
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
