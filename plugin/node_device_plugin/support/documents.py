"""Reading YAML and JSON that anybody may have written."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

#: Levels of lists and mappings; a configuration and a CDI spec have about ten.
_DEEPEST = 50


def read_json(content: bytes) -> Any:
    """The document in ``content``. ValueError for what is no JSON, or holds a key twice; RecursionError."""
    return json.loads(content, object_pairs_hook=_unique)


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError("the key %r stands twice" % next(key for key in keys if keys.count(key) > 1))
    return result


def read_yaml(content: bytes) -> Any:
    """The document in ``content``. ValueError, with line and column where they are known, for what is no YAML.

    Neither is a mapping with a key twice (YAML 1.2.2, 3.2.1.1), of which PyYAML takes the last without a word.
    """
    # Imported here: it takes a tenth of a start, and most of what is read is JSON.
    import yaml

    # libyaml reads ten times as fast. Not every build of PyYAML has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Before it is composed: libyaml's binding recurses on the C stack, and tens of thousands of levels end the
        # process.
        _check(yaml.parse(content, Loader=loader))
        return yaml.load(content, Loader=loader)  # noqa: S506 (a safe one)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


class _Open:
    """A list or mapping that has not ended yet. keys: None for a list."""

    def __init__(self, keys: Optional[Set[str]]) -> None:
        self.keys = keys
        self.at_key = keys is not None


def _check(events: Iterable[Any]) -> None:
    import yaml

    inside: List[_Open] = [_Open(None)]
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            inside.pop()
        elif isinstance(event, yaml.NodeEvent):
            around = inside[-1]
            if around.at_key and around.keys is not None and isinstance(event, yaml.ScalarEvent):
                # Merged mappings may be several, and what they hold may stand here as well.
                if event.value in around.keys and event.value != "<<":
                    where = " ".join(str(event.start_mark).split())
                    raise ValueError("the key %r stands twice %s" % (event.value, where))
                around.keys.add(event.value)
            around.at_key = around.keys is not None and not around.at_key
            if isinstance(event, yaml.CollectionStartEvent):
                if len(inside) > _DEEPEST:
                    raise ValueError("it nests more than %d levels deep" % _DEEPEST)
                inside.append(_Open(set() if isinstance(event, yaml.MappingStartEvent) else None))
