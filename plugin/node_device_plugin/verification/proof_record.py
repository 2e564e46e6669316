"""The record of a node's proofs. With the record, an unchanged resource needs no second proof.

The command `verify` reads the record from a file on the node. If only the Kubernetes API reaches a node, the controller
keeps the record on the node object. The module needs only the standard library, because the controller also imports it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping

from ..declaration import Resource
from ..declaration.serialise import resources_to_data


class Record:
    """Maps each resource name to the hash of everything on which the resource's proof depends.

    proven: the hashes of an earlier record. plugin: the mode of the serving plugin, and its version or image.
    """

    def __init__(self, proven: Mapping[str, str], plugin: str) -> None:
        self.proven: dict[str, str] = dict(proven)
        self._plugin = plugin

    def holds(self, resource: Resource, runtime: str) -> bool:
        """Whether the resource was proven with its current declaration, this runtime and this plugin."""
        return self.proven.get(resource.name) == self._hash(resource, runtime)

    def note(self, resource: Resource, runtime: str, proven: bool) -> None:
        """Record the outcome of a proof."""
        others = {name: value for name, value in self.proven.items() if name != resource.name}
        self.proven = {**others, resource.name: self._hash(resource, runtime)} if proven else others

    def keep_only(self, resources: Iterable[Resource], runtime: str) -> None:
        """Forget every proof that no longer holds. A later revert of the change then needs a new proof."""
        held = {resource.name for resource in resources if self.holds(resource, runtime)}
        self.proven = {name: value for name, value in self.proven.items() if name in held}

    def _hash(self, resource: Resource, runtime: str) -> str:
        subject = [resources_to_data([resource]), runtime, self._plugin]
        return hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()


def read_file(path: str | None) -> dict[str, str]:
    """The record in a JSON file; empty if ``path`` is None or the file is missing or unreadable.

    The caller of `verify` writes the new record, because the command itself writes nothing on the node.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path is not None:
            with open(path, encoding="utf-8") as file:
                return read_text(file.read())
    return {}


def read_text(text: str) -> dict[str, str]:
    """The record in a JSON text; empty for invalid text, so that every resource is proven again."""
    try:
        return {str(name): str(value) for name, value in dict(json.loads(text)).items()}
    except (RecursionError, ValueError, TypeError):
        return {}
