"""What was proven on this node, so that an unchanged resource need not be proven again."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Dict, Iterable, Optional

from ..declaration import Resource
from ..declaration.serialise import resources_to_data
from ..version import version


class Record:
    """Resource name to the hash of all that its proof depended on.

    path: the JSON file that holds an earlier record; None, or no such file, for none. Who called writes the new one:
    this command changes nothing on the node.
    """

    def __init__(self, path: Optional[str]) -> None:
        self.proven: Dict[str, str] = {}
        # A record that cannot be read proves nothing: everything is proven again.
        if path is not None:
            with contextlib.suppress(OSError, ValueError, TypeError), open(path, encoding="utf-8") as file:
                self.proven = {str(name): str(value) for name, value in dict(json.load(file)).items()}

    def holds(self, resource: Resource, runtime: str) -> bool:
        """Whether the resource was proven exactly as it is declared now, with this runtime and plugin."""
        return self.proven.get(resource.name) == _hash(resource, runtime)

    def note(self, resource: Resource, runtime: str, proven: bool) -> None:
        """Remember the outcome of a proof."""
        others = {name: value for name, value in self.proven.items() if name != resource.name}
        self.proven = {**others, resource.name: _hash(resource, runtime)} if proven else others

    def keep_only(self, resources: Iterable[Resource]) -> None:
        """Forget resources that are no longer declared."""
        names = {resource.name for resource in resources}
        self.proven = {name: value for name, value in self.proven.items() if name in names}


def _hash(resource: Resource, runtime: str) -> str:
    subject = [resources_to_data([resource]), runtime, version()]
    return hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()
