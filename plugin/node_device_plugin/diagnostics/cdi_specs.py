"""The command ``cdi check``: checks the CDI specs of this node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..cdi.directories import DEFAULT_DIRECTORIES, check_directories
from ..cdi.resolution import Resolution
from ..declaration import cdi
from ..runtime import queries as runtime_queries
from ..runtime.errors import CriError
from ..support.bounded_calls import BoundedCalls, NoAnswer
from ..support.tables import printable, table

#: Maximum seconds for reading all specs.
_LIMIT = 30.0


class Report(NamedTuple):
    """The checked specs. runtime: the runtime's name and version, or the reason why it does not answer.

    accepted: the highest CDI version that the runtime accepts; None if unknown.
    """

    directories: tuple[str, ...]
    runtime: str
    accepted: str | None
    specs: Resolution

    @property
    def problems(self) -> list[str]:
        """One sentence for each problem."""
        files, problems = self.specs.every.values(), self.specs.problems
        return [printable(f"{file.path}: {problem}") for file in files for problem in problems(file)]

    def to_data(self) -> dict[str, Any]:
        """The report, ready for JSON."""
        return {
            "directories": list(self.directories),
            "runtime": self.runtime,
            "accepted_version": self.accepted,
            "files": [
                {
                    "path": file.path,
                    "owner": file.owner,
                    "kind": file.kind,
                    "version": file.version,
                    "devices": list(file.devices),
                    "problems": [problem._asdict() for problem in self.specs.problems(file)],
                }
                for file in self.specs.every.values()
            ],
        }

    def to_text(self) -> str:
        """The report as text."""
        accepts = f"accepts CDI up to {self.accepted}" if self.accepted else "accepted CDI versions unknown"
        lines = [f"{self.runtime}: {accepts}", ""]
        if not self.specs.every:
            return "\n".join([*lines, "no spec in {}".format(", ".join(self.directories))])
        rows = [
            [f.path, f.owner, f.kind, f.version, str(len(f.devices)), "wrong" if self.specs.problems(f) else "ok"]
            for f in self.specs.every.values()
        ]
        lines.append(table(["FILE", "OWNER", "KIND", "CDI", "DEVICES", "STATE"], rows))
        return "\n".join(lines + ([""] if self.problems else []) + self.problems)


async def check(directories: Sequence[str] | None, runtime_socket: str) -> Report:
    """Check the given spec directories, or else the running runtime's directories, or else the default directories."""
    accepted = None
    try:
        state = await runtime_queries.runtime(runtime_socket)
    except CriError as error:
        runtime, configured = str(error), None
    else:
        runtime, configured = "{name} {version}".format(**state), state["cdi"]["spec_dirs"]
        if state["name"] == "containerd":
            accepted = cdi.accepted_version(state["version"])
    looked_at = tuple(directories or configured or DEFAULT_DIRECTORIES)
    return Report(looked_at, runtime, accepted, await read_specs(looked_at, accepted))


async def read_specs(directories: Sequence[str], accepted: str | None) -> Resolution:
    """The specs of the directories. Raises NoAnswer with the directories if a directory or file hangs."""
    try:
        return await BoundedCalls(_LIMIT).ask(lambda: Resolution(check_directories(directories, accepted)))
    except NoAnswer as error:
        raise NoAnswer("reading the CDI specs in {} {}".format(", ".join(directories), error)) from error
