# SPDX-License-Identifier: Apache-2.0
"""Which devices a udev rule is about, as far as its own line says.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import fnmatch
import re

_PART = re.compile(r'([A-Z_]+)(?:\{[^}]*\})?\s*(==|!=|\+=|-=|:=|=)\s*([ei]?)"((?:[^"\\]|\\.)*)"')
# They lead from line to line, and say nothing of a device.
_FLOW = ("LABEL", "GOTO")


class Rule:
    """One line. subsystems, kernels: patterns of which one has to match; empty for any."""

    def __init__(self, line):
        parts = _PART.findall(line)
        self.subsystems = _patterns(parts, "SUBSYSTEM")
        self.kernels = _patterns(parts, "KERNEL")
        self.does_something = any(op not in ("==", "!=") and key not in _FLOW for key, op, _case, _value in parts)

    @property
    def trigger(self):
        """The options of ``udevadm trigger`` for its devices; none where only the whole host would do."""
        return [
            *("--subsystem-match=" + pattern for pattern in self.subsystems),
            *("--sysname-match=" + pattern for pattern in self.kernels),
        ]

    def is_about(self, subsystem, sysname):
        """Whether it may say something of a device; where the line names none, it may."""
        return (
            self.does_something
            and _matches(self.subsystems, subsystem)
            and _matches(self.kernels, sysname.replace("/", "!"))
        )


def _patterns(parts, wanted):
    """What a device's key must match, by the plain comparisons alone: udevadm takes none that ignores case."""
    values = [value for key, op, case, value in parts if key == wanted and op == "==" and case != "i"]
    # Two of them have to match at once; the first is enough to go by.
    return values[0].split("|") if values else []


def _matches(patterns, name):
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
