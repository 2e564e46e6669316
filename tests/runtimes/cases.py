"""The table of starting configurations: configurations/index.yml, and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple
from containerds import CONFIG, Containerd

DIRECTORY = Path(__file__).parent / "configurations"


class Case(NamedTuple):
    """One starting configuration.

    config: the root file that the daemon is started with. files: what is in each file; of one with the content
    ``default``, what `config default` of the containerd itself prints. links: symbolic links.
    generator: the template that the root file is generated from, as k3s does it at its start.
    base: what k3s has in place of a template's line {{ template "base" . }}; a root file with the content ``generated``
    comes from both.
    expect: by the first version that it holds for: ``untouched``, {edited: lines of a diff} or {refused: words}.
    """

    name: str
    config: str
    files: dict[str, str]
    links: dict[str, str]
    generator: str | None
    base: str | None
    expect: dict[str, Any]

    def contents(self, node: Containerd) -> dict[str, bytes]:
        """The files as they are on a node."""
        files = {
            path: node.default.encode() if name == "default" else (DIRECTORY / name).read_bytes()
            for path, name in self.files.items()
            if name != "generated"
        }
        return {**files, self.config: self.generated(files)} if "generated" in self.files.values() else files

    def generated(self, files: Mapping[str, bytes]) -> bytes:
        """The root file that the template of these files makes."""
        assert self.generator
        template = files[self.generator]
        if self.base is None:
            return template
        return template.replace(b'{{ template "base" . }}', (DIRECTORY / self.base).read_bytes())

    def real(self, path: str) -> str:
        """A path without the case's links to folders."""
        for link, target in self.links.items():
            if path.startswith(f"{link}/"):
                return target + path.removeprefix(link)
        return path

    def expected(self, version: str) -> Any:
        """What is expected of a containerd."""
        fitting = [first for first in self.expect if version_tuple(f"{first}.0") <= version_tuple(version)]
        return self.expect[max(fitting, key=lambda first: version_tuple(f"{first}.0"))]


def cases() -> list[Case]:
    """The whole table."""
    return [
        Case(
            name=entry["name"],
            config=entry.get("config", CONFIG),
            files=entry.get("files", {CONFIG: f"{entry['name']}.toml"}),
            links=entry.get("links", {}),
            generator=entry.get("generator"),
            base=entry.get("base"),
            expect={str(first): outcome for first, outcome in entry["expect"].items()},
        )
        for entry in yaml.safe_load((DIRECTORY / "index.yml").read_text())
    ]
