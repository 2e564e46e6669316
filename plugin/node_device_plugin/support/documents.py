"""Reads YAML and JSON from untrusted sources, and writes YAML."""

from __future__ import annotations

import collections
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: Maximum levels of lists and mappings. A configuration or CDI spec has about ten.
_DEEPEST = 50
#: Maximum of digits of a number. Python cannot write a number of thousands of digits, so no message could name it.
_MOST_DIGITS = 1000
_NUMBER = re.compile(r"[-+]?(0x[0-9a-fA-F_]+|[0-9_:]+)")
#: Maximum of nodes and characters that all aliases of a document stand for. Runtimes' YAML library has such a limit.
_MOST_BY_ALIASES = 4 << 20
#: The path that stands for stdin on a command line.
STDIN = "-"
# PyYAML writes some texts without quotes that another YAML parser, such as kubectl's, reads as a number or a boolean:
# 1e3, 089, 0o17, y. Therefore every text that begins like a number gets quotes.
_AMBIGUOUS = re.compile(r"[-+.0-9].*|[yYnN]", re.DOTALL)


def read_file(path: str) -> bytes:
    """The bytes of a file, or of stdin for STDIN. Raises OSError."""
    # Open stdin by its number, because stdin may be a socket, and /dev/stdin cannot open a socket.
    with open(0 if path == STDIN else path, "rb", closefd=path != STDIN) as file:
        return file.read()


def name_of(path: str) -> str:
    """The name of the source in messages."""
    return "stdin" if path == STDIN else path


def read_json(content: bytes, number: Callable[[str], Any] | None = None) -> Any:
    """The document in ``content``. Raises ValueError for invalid JSON, a repeated key, or half of a surrogate pair.

    Raises RecursionError if the document nests too deep. number: makes the value of each number, instead of Python's.
    """
    document = json.loads(
        content, object_pairs_hook=_unique, parse_int=number, parse_float=number, parse_constant=number
    )
    if b"\\u" in content:
        # Encoding raises ValueError for half of a surrogate pair.
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is set twice")
    return result


def read_yaml(content: bytes) -> Any:
    """The document in ``content``. Raises ValueError, with line and column if known.

    Invalid YAML, too deep nesting and a repeated key of a mapping (YAML 1.2.2, 3.2.1.1) are errors. PyYAML would
    silently keep the last value of a repeated key.
    """
    # Import yaml only here, because the import takes a tenth of the start-up time, and most documents are JSON.
    import yaml

    # Check the depth before loading, because libyaml's binding recurses on the C stack. Tens of
    # thousands of levels crash the process.
    collections.deque(yaml_events(content, merges=True), maxlen=0)
    try:
        return yaml.load(_stream(content), Loader=_loader())  # noqa: S506 (a safe one)
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from error


def yaml_events(content: bytes, merges: bool) -> Iterator[Any]:
    """PyYAML's events of the documents in ``content``. Raises ValueError for the errors that read_yaml lists.

    merges: whether a key ``<<`` of YAML 1.1 may merge other mappings; if not, this key is an error.
    """
    import yaml

    try:
        yield from _checked(yaml.parse(_stream(content), Loader=_loader()), merges)
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from error


def _stream(content: bytes) -> io.BytesIO:
    """The content as a file. Of bytes, PyYAML without libyaml quotes the line of an error, which may be a secret."""
    return io.BytesIO(content)


def _loader() -> Any:
    import yaml

    # libyaml is ten times as fast, but not every build of PyYAML includes libyaml.
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _one_line(text: Any) -> str:
    """A message of PyYAML in one line, without PyYAML's name for the document."""
    return " ".join(str(text).split()).replace('in "<file>", ', "at ")


def write_yaml(data: Any) -> str:
    """Data as a YAML document without aliases. A text of several lines becomes a block scalar."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes no aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        style = "|" if "\n" in value else "'" if _AMBIGUOUS.fullmatch(value) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    written: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, width=120)
    return written


class _Open:
    """A list or mapping that has not ended yet. keys: the keys so far; None for a list. begun: the size before it."""

    def __init__(self, keys: set[str] | None, anchor: str | None = None, begun: int = 0) -> None:
        self.keys, self.anchor, self.begun = keys, anchor, begun
        self.at_key = keys is not None


def _checked(events: Iterable[Any], merges: bool) -> Iterator[Any]:
    import yaml

    inside: list[_Open] = [_Open(None)]
    # Nodes and characters, of the document, by anchor, and of all aliases: a small document may stand for gigabytes.
    size, by_aliases = 0, 0
    sizes: dict[str | None, int] = {}
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            ended = inside.pop()
            sizes[ended.anchor] = size - ended.begun
        elif isinstance(event, yaml.NodeEvent):
            around = inside[-1]
            if around.at_key and around.keys is not None and isinstance(event, yaml.ScalarEvent):
                if event.value == "<<" and not merges:
                    raise ValueError(f"merge keys (<<) are not supported: one is {_one_line(event.start_mark)}")
                # A mapping may have several merge keys, and may repeat a key of a merged mapping.
                if event.value in around.keys and event.value != "<<":
                    raise ValueError(f"the key {event.value!r} is set twice, again {_one_line(event.start_mark)}")
                around.keys.add(event.value)
            around.at_key = around.keys is not None and not around.at_key
            begun = size
            if isinstance(event, yaml.AliasEvent):
                if any(each.anchor == event.anchor for each in inside):
                    raise ValueError(f"{event.anchor!r} contains itself {_one_line(event.start_mark)}")
                size += sizes.get(event.anchor, 1)
                by_aliases += size - begun
                if by_aliases > _MOST_BY_ALIASES:
                    raise ValueError(
                        f"the aliases expand to more than {_MOST_BY_ALIASES} values and characters, up to "
                        f"{_one_line(event.start_mark)}: write out the values instead of aliases"
                    )
                yield event
                continue
            size += 1
            if isinstance(event, yaml.CollectionStartEvent):
                if len(inside) > _DEEPEST:
                    raise ValueError("the document nests more than %d levels deep" % _DEEPEST)
                keys: set[str] | None = set() if isinstance(event, yaml.MappingStartEvent) else None
                inside.append(_Open(keys, event.anchor, begun))
            elif isinstance(event, yaml.ScalarEvent):
                is_text = not (event.implicit[0] or event.tag)
                if len(event.value) > _MOST_DIGITS and not is_text and _NUMBER.fullmatch(event.value):
                    raise ValueError(
                        "a number has more than %d digits %s" % (_MOST_DIGITS, _one_line(event.start_mark))
                    )
                size += len(event.value)
                sizes[event.anchor] = size - begun
        yield event
