"""What the command ``cdi check`` finds and shows."""

from __future__ import annotations

import asyncio
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..cdi.directories import DEFAULT_DIRECTORIES, SpecFile, check_directories
from ..declaration import cdi
from ..runtime import queries as runtime_queries
from ..runtime.errors import CriError
from ..support.tables import printable, table


class Report(NamedTuple):
    """Every spec file. runtime: who is to read them, or why it did not answer. accepted: its highest CDI version."""

    directories: Tuple[str, ...]
    runtime: str
    accepted: Optional[str]
    files: Tuple[SpecFile, ...]

    @property
    def problems(self) -> List[str]:
        """A sentence each."""
        return [printable("%s: %s" % (file.path, problem)) for file in self.files for problem in file.every_problem]

    def to_data(self) -> Dict[str, Any]:
        """As JSON takes it."""
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
                    "problems": [problem._asdict() for problem in file.every_problem],
                }
                for file in self.files
            ],
        }

    def to_text(self) -> str:
        """For people."""
        accepts = "accepts CDI up to %s" % self.accepted if self.accepted else "versions are not held to it"
        lines = ["%s: %s" % (self.runtime, accepts), ""]
        if not self.files:
            return "\n".join([*lines, "no spec in %s" % ", ".join(self.directories)])
        rows = [
            [f.path, f.owner, f.kind, f.version, str(len(f.devices)), "wrong" if f.every_problem else "ok"]
            for f in self.files
        ]
        lines.append(table(["FILE", "OWNER", "KIND", "CDI", "DEVICES", "STATE"], rows))
        return "\n".join(lines + ([""] if self.problems else []) + self.problems)


async def check(directories: Optional[Sequence[str]], runtime_socket: str) -> Report:
    """Check the spec directories; those of the running runtime if none are given, or the usual ones."""
    accepted = None
    try:
        state = await runtime_queries.runtime(runtime_socket)
    except CriError as error:
        runtime, configured = str(error), None
    else:
        runtime, configured = "%(name)s %(version)s" % state, state["cdi"]["spec_dirs"]
        if state["name"] == "containerd":
            accepted = cdi.accepted_version(state["version"])
    looked_at = tuple(directories or configured or DEFAULT_DIRECTORIES)
    # In a thread: a directory may be on a slow file system.
    return Report(looked_at, runtime, accepted, tuple(await asyncio.to_thread(check_directories, looked_at, accepted)))
