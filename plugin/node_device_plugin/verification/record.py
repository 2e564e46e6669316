"""What was proven on this node, so that an unchanged resource need not be proven again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any, Dict, Optional

from ..declaration import Resource
from ..declaration.serialise import resources_to_data
from ..version import version


class Record:
    """A JSON file: resource name to the hash of all that its proof depended on. None keeps nothing."""

    def __init__(self, path: Optional[str]) -> None:
        self._path = path
        self._saved = self._proven = self._read()

    def holds(self, resource: Resource, runtime: str) -> bool:
        """Whether the resource was proven exactly as it is declared now, with this runtime and plugin."""
        return self._proven.get(resource.name) == _hash(resource, runtime)

    def note(self, resource: Resource, runtime: str, proven: bool) -> None:
        """Remember the outcome of a proof."""
        others = {name: value for name, value in self._proven.items() if name != resource.name}
        self._proven = {**others, resource.name: _hash(resource, runtime)} if proven else others

    def save(self) -> None:
        """Write it where something is new; atomic."""
        if self._path is None or self._proven == self._saved:
            return
        staged = self._path + ".new"
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(staged, "w", encoding="utf-8") as file:
            json.dump(self._proven, file, indent=2, sort_keys=True)
        os.replace(staged, self._path)

    def _read(self) -> Dict[str, Any]:
        # A record that cannot be read proves nothing: everything is proven again.
        with contextlib.suppress(OSError, ValueError):
            with open(self._path or os.devnull, encoding="utf-8") as file:
                data = json.load(file)
            if isinstance(data, dict):
                return data
        return {}


def _hash(resource: Resource, runtime: str) -> str:
    subject = [resources_to_data([resource]), runtime, version()]
    return hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()
