"""The findings of doctor: one for each link of the chain, with the command that fixes it."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from ..support.tables import printable, table

OK = "ok"
WRONG = "wrong"
#: A problem to fix, although all our devices still reach their containers.
WARNING = "warning"
#: Doctor could not check the link, because an earlier link is wrong.
UNKNOWN = "unknown"


class Finding(NamedTuple):
    """One link of the chain. found: what doctor found. fix: the commands to run, for the states WRONG and WARNING."""

    link: str
    state: str
    found: str
    fix: str = ""


class Findings(list[Finding]):
    """All findings of a node, in the order of the chain."""

    def ok(self, link: str, found: str) -> None:
        self.append(Finding(link, OK, printable(found)))

    def wrong(self, link: str, found: str, fix: str) -> None:
        self.append(Finding(link, WRONG, printable(found), fix))

    def warning(self, link: str, found: str, fix: str) -> None:
        self.append(Finding(link, WARNING, printable(found), fix))

    def unknown(self, link: str, found: str) -> None:
        self.append(Finding(link, UNKNOWN, printable(found)))

    @property
    def is_healthy(self) -> bool:
        """Whether no link is wrong."""
        return all(finding.state != WRONG for finding in self)

    def to_data(self) -> dict[str, Any]:
        """The findings, ready for JSON."""
        return {"healthy": self.is_healthy, "findings": [finding._asdict() for finding in self]}

    def to_text(self) -> str:
        """The findings as text: a table of the chain, then the fixes and the findings that the table shortens."""
        lines = [table(["LINK", "STATE", "FOUND"], [[each.link, each.state, _short(each.found)] for each in self])]
        for finding in self:
            if finding.fix:
                lines.append("\n{}: {}\n{}".format(finding.link, finding.found, textwrap.indent(finding.fix, "    ")))
            elif finding.found != _short(finding.found):
                lines.append(f"\n{finding.link}: {finding.found}")
        return "\n".join(lines)


def _short(text: str) -> str:
    return textwrap.shorten(text, 100, placeholder=" ...")
