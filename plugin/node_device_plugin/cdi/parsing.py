"""Parses a spec file. Runtimes read both endings as YAML, of which JSON is a part but for some escapes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from ..support.documents import read_json, yaml_events
from .scalars import Plain, Scalar, as_text, resolve

#: An escape sequence in double quotes. The group has an escape of JSON that the runtimes' YAML library refuses.
_ESCAPE = re.compile(r"\\(?:(/|[uU]0*[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
#: What a JSON file may contain, and the YAML library reads differently or not at all: such an escape, a control
#: character, a line separator, a byte order mark; and a line break after a key.
_NOT_IN_YAML = re.compile(
    rb"\\(/|[uU][dD][89a-fA-F])|[\x00\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]"
)
_LATE_COLON = re.compile(rb"[\r\n]\s*:")
#: A byte order mark.
_MARK = b"\xef\xbb\xbf"
_PREFIX = "tag:yaml.org,2002:"
#: The tags of YAML that limit a scalar to one type.
_TYPES: dict[str, tuple[type, ...]] = {"null": (type(None),), "bool": (bool,), "int": (int,), "float": (int, float)}


def parse(path: str, content: bytes) -> Any:
    """The document of a spec file; a scalar that text fields do not get as written is Plain.

    Reading JSON takes a tenth of the time of YAML. Raises ValueError or RecursionError.
    """
    if not path.endswith(".json"):
        return _read_yaml(content)
    if _is_read_differently(content):
        try:
            return _read_yaml(content)
        except ValueError as error:
            raise ValueError(f"{error} (runtimes read JSON files as YAML)") from error
    try:
        return read_json(content, number=resolve)
    except ValueError as error:
        try:
            return _read_yaml(content)
        except ValueError:
            raise error from None


def _is_read_differently(content: bytes) -> bool:
    # Most files need no regular expression, which takes as long as reading the file.
    is_usual = content.isascii() and not any(byte in content for byte in (b"\\", b"\x00", b"\x7f"))
    return bool(_LATE_COLON.search(content) or (not is_usual and _NOT_IN_YAML.search(content)))


def _read_yaml(content: bytes) -> Any:
    import yaml

    if _MARK in content[len(_MARK) :]:
        raise ValueError("contains a byte order mark after its start, which runtimes read as text: remove it")
    document: list[Any] = []
    builder = _Builder(content)
    for event in builder.events:
        if isinstance(event, yaml.DocumentStartEvent):
            if event.version and tuple(event.version) != (1, 1):
                why = "but runtimes read only 1.1: remove it"
                raise ValueError("has the directive %%YAML %d.%d, %s" % (*event.version, why))
            if document:
                raise ValueError(f"a second document begins{_at(event)}, and runtimes ignore it: remove it")
            document.append(builder.node(next(builder.events), in_flow=False))
    return document[0] if document else None


class _Builder:
    """Makes a document of its events. Does not use PyYAML's constructors, which read numbers and dates otherwise."""

    def __init__(self, content: bytes) -> None:
        import yaml

        self.events: Iterator[Any] = yaml_events(content, merges=False)
        self._yaml = yaml
        self._anchors: dict[str, Any] = {}
        text = content.decode("utf-8", "replace")
        #: The text, if one of its escapes may be one that runtimes refuse.
        self._text = text if any(match[1] for match in _ESCAPE.finditer(text)) else ""

    def node(self, event: Any, in_flow: bool) -> Any:
        """The value of the node that begins with this event. in_flow: whether it is inside of brackets or braces."""
        if isinstance(event, self._yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise ValueError(f"the alias *{event.anchor} has no anchor before it{_at(event)}")
            return self._anchors[event.anchor]
        is_scalar = isinstance(event, self._yaml.ScalarEvent)
        # The runtimes' parser is older: there, a "?" ends a text without quotes, and a tag goes on after a bracket.
        is_refused = ("?" in event.value and not event.style) if is_scalar else bool(event.tag)
        if in_flow and (is_refused or (is_scalar and event.tag and not event.value and not event.style)):
            raise ValueError(f"a '?' or a tag inside of brackets or braces{_at(event)}: runtimes refuse it: use quotes")
        value = self._scalar(event) if is_scalar else self._collection(event, in_flow or event.flow_style)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _collection(self, event: Any, in_flow: bool) -> Any:
        if isinstance(event, self._yaml.SequenceStartEvent):
            return [self.node(each, in_flow) for each in self._until(self._yaml.SequenceEndEvent)]
        values: dict[Any, Any] = {}
        for each in self._until(self._yaml.MappingEndEvent):
            key = _as_key(self.node(each, in_flow), each)
            if key in values:
                raise ValueError(f"the key {key!r} is set twice, again{_at(each)}")
            values[key] = self.node(next(self.events), in_flow)
        return values

    def _until(self, end: type) -> Iterator[Any]:
        for event in self.events:
            if isinstance(event, end):
                return
            yield event

    def _scalar(self, event: Any) -> Scalar:
        text: str = event.value
        if self._text and event.style == '"':
            for match in _ESCAPE.finditer(self._text[event.start_mark.index : event.end_mark.index]):
                if match[1]:
                    why = "runtimes' YAML library, which also reads JSON, refuses this escape: write the character"
                    raise ValueError(f"the escape {match[0]}{_at(event)}: {why}")
        if event.tag is None:
            return text if event.style else resolve(text)
        kind = event.tag[len(_PREFIX) :] if event.tag.startswith(_PREFIX) else ""
        if kind == "binary":
            return _decoded(text, event)
        if kind not in _TYPES:
            return text
        value = resolve(text)
        found = value.value if isinstance(value, Plain) else value
        # YAML 1.1's yes is a boolean; with this tag, the library 1.1.1 refuses it.
        is_refused = kind == "bool" and text.lower() not in ("true", "false")
        if is_refused or not isinstance(found, _TYPES[kind]) or (isinstance(found, bool) and kind != "bool"):
            raise ValueError(f"{text!r} is no {kind}, as its tag says{_at(event)}")
        return value


def _as_key(value: Any, event: Any) -> Any:
    """A key as text, as all libraries read it; a number that they write differently stays."""
    if isinstance(value, (list, dict)):
        raise ValueError(f"a key is no text{_at(event)}")
    return as_text(value)


def _decoded(text: str, event: Any) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8")
    except ValueError:
        raise ValueError(f"a !!binary value is not the base64 of a text{_at(event)}") from None


def _at(event: Any) -> str:
    return " at line %d, column %d" % (event.start_mark.line + 1, event.start_mark.column + 1)
