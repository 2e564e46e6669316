"""Shorthands: texts that may stand for a mapping in a list of a declaration."""

from __future__ import annotations

import json
from typing import Any, Callable, NamedTuple

from .names import device_id, name_of_path


class Shorthand(NamedTuple):
    """A text that may stand in a list for a mapping.

    example: such a text. long: returns the mapping for a text, or None if the text has another form.
    """

    example: str
    long: Callable[[str], dict[str, Any] | None]

    def explain(self, text: str) -> str:
        """What ``text`` means, or the example if ``text`` has another form; for messages and the reference."""
        long = self.long(text)
        if long is None:
            return self.explain(self.example)
        return f"{text!r} is short for " + json.dumps(long, ensure_ascii=False).replace('"', "")


def _node(text: str) -> dict[str, Any] | None:
    return {"path": text} if text.startswith("/") else None


def _device(text: str) -> dict[str, Any] | None:
    """A device with the id that discovery by paths gives it."""
    name = device_id(name_of_path(text)) if text.startswith("/") else ""
    return {"id": name, "nodes": [{"path": text}]} if name else None


def _mount(text: str) -> dict[str, Any] | None:
    host_path, *others = text.split(":")
    if not host_path.startswith("/") or len(others) not in (1, 2) or not all(others):
        return None
    options = {"options": others[1].split(",")} if len(others) == 2 else {}
    return {"host_path": host_path, "container_path": others[0], **options}


NODE = Shorthand("/dev/ttyS0", _node)
DEVICE = Shorthand("/dev/ttyS0", _device)
MOUNT = Shorthand("/srv/data:/data:ro", _mount)
