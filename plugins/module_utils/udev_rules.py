# SPDX-License-Identifier: Apache-2.0
"""Finds the devices that a udev rule may affect.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import fnmatch
import re

_PART = re.compile(r'([A-Z_]+)(?:\{[^}]*\})?\s*(==|!=|\+=|-=|:=|=)\s*([ei]?)"((?:[^"\\]|\\.)*)"')
# Keys that control the order of lines and affect no device.
_FLOW = ("LABEL", "GOTO")


class Rule:
    """A rule. subsystems, kernels: lists of patterns. A device must match a pattern of each nonempty list."""

    def __init__(self, line):
        parts = _PART.findall(line)
        self.subsystems = _patterns(parts, "SUBSYSTEM")
        self.kernels = _patterns(parts, "KERNEL")
        self.does_something = any(op not in ("==", "!=") and key not in _FLOW for key, op, _case, _value in parts)

    @property
    def trigger(self):
        """The options of ``udevadm trigger`` that select the rule's devices; empty if the rule has no pattern."""
        return [
            *("--subsystem-match=" + pattern for pattern in self.subsystems),
            *("--sysname-match=" + pattern for pattern in self.kernels),
        ]

    def is_about(self, subsystem, sysname):
        """Return whether the rule may affect a device. A rule without SUBSYSTEM and KERNEL may affect any device."""
        return (
            self.does_something
            and _matches(self.subsystems, subsystem)
            and _matches(self.kernels, sysname.replace("/", "!"))
        )


def _patterns(parts, wanted):
    """Return a key's patterns. Skips case-insensitive comparisons, because udevadm does not support them."""
    values = [value for key, op, case, value in parts if key == wanted and op == "==" and case != "i"]
    # A device must match all comparisons of a key, so the first comparison includes all affected devices.
    return values[0].split("|") if values else []


def _matches(patterns, name):
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
