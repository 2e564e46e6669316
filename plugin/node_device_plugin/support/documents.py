"""Reading YAML and JSON that anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

#: Levels of lists and mappings; a configuration and a CDI spec have about ten.
_DEEPEST = 50


def read_json(content: bytes) -> Any:
    """The document in ``content``. ValueError for what is no JSON or text, or holds a key twice; RecursionError."""
    document = json.loads(content, object_pairs_hook=_unique)
    if b"\\u" in content:
        # Half of a surrogate pair is no text.
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
    return result


def read_yaml(content: bytes, merges: bool = True) -> Any:
    """The document in ``content``. ValueError, with line and column where they are known, for what is no YAML.

    Neither is a mapping with a key twice (YAML 1.2.2, 3.2.1.1), of which PyYAML takes the last without a word.
    merges: whether a key ``<<``, of YAML 1.1, may merge other mappings.
    """
    # Imported here: it takes a tenth of a start, and most of what is read is JSON.
    import yaml

    # libyaml reads ten times as fast. Not every build of PyYAML has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Before it is composed: libyaml's binding recurses on the C stack, and tens of thousands of levels end the
        # process.
        _check(yaml.parse(content, Loader=loader), merges)
        return yaml.load(content, Loader=loader)  # noqa: S506 (a safe one)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


class _Open:
    """A list or mapping that has not ended yet. keys: None for a list."""

    def __init__(self, keys: set[str] | None) -> None:
        self.keys = keys
        self.at_key = keys is not None


def _check(events: Iterable[Any], merges: bool) -> None:
    import yaml

    inside: list[_Open] = [_Open(None)]
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            inside.pop()
        elif isinstance(event, yaml.NodeEvent):
            around = inside[-1]
            if around.at_key and around.keys is not None and isinstance(event, yaml.ScalarEvent):
                if event.value == "<<" and not merges:
                    where = " ".join(str(event.start_mark).split())
                    raise ValueError(f"a merge key (<<) stands {where}")
                # Merged mappings may be several, and what they hold may stand here as well.
                if event.value in around.keys and event.value != "<<":
                    where = " ".join(str(event.start_mark).split())
                    raise ValueError(f"the key {event.value!r} stands twice {where}")
                around.keys.add(event.value)
            around.at_key = around.keys is not None and not around.at_key
            if isinstance(event, yaml.CollectionStartEvent):
                if len(inside) > _DEEPEST:
                    raise ValueError("it nests more than %d levels deep" % _DEEPEST)
                inside.append(_Open(set() if isinstance(event, yaml.MappingStartEvent) else None))
