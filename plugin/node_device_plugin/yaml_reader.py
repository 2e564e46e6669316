"""Reading YAML that anybody may have written."""

from __future__ import annotations

from typing import Any

#: Levels of lists and mappings; a configuration and a CDI spec have about ten.
_DEEPEST = 50


def read_yaml(content: bytes) -> Any:
    """The document in ``content``. ValueError, with line and column where they are known, for what is no YAML."""
    # Imported here: it takes a tenth of a start, and most of what is read is JSON.
    import yaml

    # libyaml reads ten times as fast. Not every build of PyYAML has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        # Before it is composed: libyaml's binding recurses on the C stack, and tens of thousands of levels end the
        # process.
        for event in yaml.parse(content, Loader=loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _DEEPEST:
                    raise ValueError("it nests more than %d levels deep" % _DEEPEST)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        return yaml.load(content, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
