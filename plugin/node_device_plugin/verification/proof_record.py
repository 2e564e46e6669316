"""What was proven of a node, so that an unchanged resource need not be proven again.

On a node the command `verify` has it in a file; of one that only the Kubernetes API reaches the controller keeps it on
the node object. Standard library only: the controller imports it, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping

from ..declaration import Resource
from ..declaration.serialise import resources_to_data


class Record:
    """Resource name to the hash of all that its proof depended on.

    proven: of an earlier record. plugin: what serves the devices: in which mode, and of which version or image.
    """

    def __init__(self, proven: Mapping[str, str], plugin: str) -> None:
        self.proven: dict[str, str] = dict(proven)
        self._plugin = plugin

    def holds(self, resource: Resource, runtime: str) -> bool:
        """Whether the resource was proven exactly as it is declared now, with this runtime and plugin."""
        return self.proven.get(resource.name) == self._hash(resource, runtime)

    def note(self, resource: Resource, runtime: str, proven: bool) -> None:
        """Remember the outcome of a proof."""
        others = {name: value for name, value in self.proven.items() if name != resource.name}
        self.proven = {**others, resource.name: self._hash(resource, runtime)} if proven else others

    def keep_only(self, resources: Iterable[Resource], runtime: str) -> None:
        """Forget what does not hold now: it must not hold again when a change is taken back, without another proof."""
        held = {resource.name for resource in resources if self.holds(resource, runtime)}
        self.proven = {name: value for name, value in self.proven.items() if name in held}

    def _hash(self, resource: Resource, runtime: str) -> str:
        subject = [resources_to_data([resource]), runtime, self._plugin]
        return hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()


def read_file(path: str | None) -> dict[str, str]:
    """The record in a JSON file; none where there is no path, no file, or one that cannot be read.

    Who called writes the new one: the command that reads it changes nothing on the node.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path is not None:
            with open(path, encoding="utf-8") as file:
                return read_text(file.read())
    return {}


def read_text(text: str) -> dict[str, str]:
    """A record as JSON; one that cannot be read proves nothing, and everything is proven again."""
    try:
        return {str(name): str(value) for name, value in dict(json.loads(text)).items()}
    except (RecursionError, ValueError, TypeError):
        return {}
