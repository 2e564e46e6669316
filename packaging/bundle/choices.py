"""Defines the Python versions and architectures of nodes and controllers for which a bundle can be built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from checkout import MACHINES as MACHINES
from checkout import locked_wheels

#: All Python versions for which the locked requirements have wheels (pyproject.toml, [project] dependencies).
NODE_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
#: The Python versions of ansible-core 2.19 on a controller. Source:
#: https://docs.ansible.com/projects/ansible-core/2.19/reference_appendices/release_and_maintenance.html
CONTROLLER_PYTHONS = ("3.11", "3.12", "3.13")
ARCHITECTURES = tuple(sorted(MACHINES))
#: The oldest glibc that the locked wheels support; they also work with later versions. Only a controller needs
#: cryptography, which has no wheel for glibc before 2.28 (Debian 10, RHEL 8).
NODE_GLIBC = (2, 17)
CONTROLLER_GLIBC = (2, 28)


class ChoiceError(Exception):
    """A bundle cannot be built for these options. The message lists the supported values."""


class Choice(NamedTuple):
    """The Python versions (such as `3.13`) and image architectures (such as `amd64`) of nodes or of controllers."""

    pythons: tuple[str, ...]
    architectures: tuple[str, ...]
    glibc: tuple[int, int]

    def targets(self) -> list[locked_wheels.Target]:
        """Return the targets that need wheels."""
        return [
            locked_wheels.Target(version(python), MACHINES[architecture], self.glibc)
            for architecture in self.architectures
            for python in self.pythons
        ]

    def __str__(self) -> str:
        glibc = ".".join(map(str, self.glibc))
        return f"Python {', '.join(self.pythons)} on {', '.join(self.architectures)} (glibc {glibc} or later)"


def version(python: str) -> tuple[int, int]:
    """Return a version such as `3.13` as numbers: (3, 13)."""
    major, minor = python.split(".")
    return int(major), int(minor)


def choose(option: str, text: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Return the names in a list with commas or spaces, in the order of ``allowed``. An empty text means all names.

    option: the option's name in messages. Raises ChoiceError.
    """
    names = text.replace(",", " ").split()
    for name in names:
        if name not in allowed:
            raise ChoiceError(f"{option}: {name} is not supported; use one of {', '.join(allowed)}")
    if text and not names:
        raise ChoiceError(f"{option}: the list is empty; use one or more of {', '.join(allowed)}")
    return tuple(name for name in allowed if name in names or not names)
