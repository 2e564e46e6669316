# SPDX-License-Identifier: Apache-2.0
"""Finds the devices that a udev rule may affect."""

from __future__ import annotations

import fnmatch
import re

_PART = re.compile(r'([A-Z_]+)(?:\{[^}]*\})?\s*(==|!=|\+=|-=|:=|=)\s*([ei]?)"((?:[^"\\]|\\.)*)"')
# Keys that control the order of lines and affect no device.
_FLOW = ("LABEL", "GOTO")
# Keys whose assignment creates nothing but the links that the rule names.
_ACCESS = ("SYMLINK", "OWNER", "GROUP", "MODE", "SECLABEL", "TAG", "OPTIONS", *_FLOW)
# Substitutions in a value: $kernel, $env{KEY}, %k, %E{KEY}, %%.
_SUBSTITUTION = re.compile(r"\\\$[a-z]+(?:\\\{[^}]*\})?|%[A-Za-z%](?:\\\{[^}]*\})?")


class Rule:
    """A rule. subsystems, kernels: lists of patterns. A device must match a pattern of each nonempty list."""

    def __init__(self, line):
        parts = _PART.findall(line)
        self.subsystems = _patterns(parts, "SUBSYSTEM")
        self.kernels = _patterns(parts, "KERNEL")
        changes = [(key, value) for key, op, _case, value in parts if op not in ("==", "!=")]
        self.does_something = any(key not in _FLOW for key, _value in changes)
        self._links = [link for key, value in changes if key == "SYMLINK" for link in value.split()]
        # It runs a program, or changes what a driver or another rule does.
        self._is_open = any(key not in _ACCESS for key, _value in changes)

    @property
    def trigger(self):
        """The options of ``udevadm trigger`` that select the rule's devices; empty if the rule has no pattern."""
        return [
            *("--subsystem-match=" + pattern for pattern in self.subsystems),
            *("--sysname-match=" + pattern for pattern in self.kernels),
        ]

    def may_make(self, path):
        """Return whether the rule may create a path: one of its links, or anything if the rule runs a program."""
        return self._is_open or any(_link(link).fullmatch(path) for link in self._links)

    def is_about(self, subsystem, sysname):
        """Return whether the rule may affect a device. A rule without SUBSYSTEM and KERNEL may affect any device."""
        return (
            self.does_something
            and _matches(self.subsystems, subsystem)
            and _matches(self.kernels, sysname.replace("/", "!"))
        )


def _link(link):
    """Return a pattern of the paths of a link below /dev. A substitution may have any value."""
    return re.compile("/dev/" + _SUBSTITUTION.sub(".*", re.escape(link)))


def _patterns(parts, wanted):
    """Return a key's patterns. Skips case-insensitive comparisons, because udevadm does not support them."""
    values = [value for key, op, case, value in parts if key == wanted and op == "==" and case != "i"]
    # A device must match all comparisons of a key, so the first comparison includes all affected devices.
    return values[0].split("|") if values else []


def _matches(patterns, name):
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
