"""What doctor finds: a line for each link of the chain, with the command that fixes it."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from ..support.tables import printable, table

OK = "ok"
WRONG = "wrong"
#: Somebody should fix it, and it keeps no device of ours from a container.
WARNING = "warning"
#: It could not be looked at, because something before it is wrong.
UNKNOWN = "unknown"


class Finding(NamedTuple):
    """One link. found: what is there. fix: a command, where it is wrong or warned of."""

    link: str
    state: str
    found: str
    fix: str = ""


class Findings(list[Finding]):
    """All of a node, in the order of the chain."""

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
        """Whether nothing is wrong."""
        return all(finding.state != WRONG for finding in self)

    def to_data(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"healthy": self.is_healthy, "findings": [finding._asdict() for finding in self]}

    def to_text(self) -> str:
        """For people: the chain, then what is to be done."""
        lines = [table(["LINK", "STATE", "FOUND"], [[each.link, each.state, _short(each.found)] for each in self])]
        for finding in self:
            if finding.state in (WRONG, WARNING):
                lines.append("\n{}: {}\n{}".format(finding.link, finding.found, textwrap.indent(finding.fix, "    ")))
        return "\n".join(lines)


def _short(text: str) -> str:
    return textwrap.shorten(text, 100, placeholder=" ...")
