"""Reads a parsed spec as each generation of the runtimes' CDI library does, and compares the readings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..declaration import Problem
from ..declaration.names import qualified_cdi_name
from .fields import SPEC, as_read
from .spec import spec_problems


class Reading(NamedTuple):
    """A spec, as runtimes read it.

    refusals: problems for which a runtime refuses the spec. unclear: one for each text that runtimes read differently.
    names: the qualified names of devices whose own name is such a text, in each reading, with the problem.
    """

    spec: Any
    refusals: Sequence[Problem] = ()
    unclear: Sequence[Problem] = ()
    names: Mapping[str, Problem] = MappingProxyType({})


def read(parsed: Any, accepted: str | None) -> Reading:
    """The reading of a parsed spec. accepted: see spec_problems."""
    # Values are converted only after a problem, to check thousands of valid devices once.
    if next(iter(spec_problems(parsed, accepted)), None) is None:
        return Reading(parsed)
    spec, former = as_read(parsed, SPEC), as_read(parsed, SPEC, former=True)
    refusals = list(spec_problems(spec, accepted))
    if spec == former:
        return Reading(spec, refusals)
    unclear = dict(_differences(spec, former, ""))
    refusals += [problem for problem in spec_problems(former, accepted) if problem not in refusals]
    if refusals:
        return Reading(spec, refusals, tuple(unclear.values()))
    names: dict[str, Problem] = {}
    for position, readings in enumerate(zip(spec["devices"], former["devices"])):
        problem = unclear.get("devices[%d].name" % position)
        if problem is not None:
            names.update((qualified_cdi_name(spec["kind"], device["name"]), problem) for device in readings)
    return Reading(spec, (), tuple(unclear.values()), names)


def _differences(newest: Any, former: Any, where: str) -> Iterator[tuple[str, Problem]]:
    """Each place below ``where`` with other text, and its problem."""
    if newest == former:
        return
    if isinstance(newest, dict) and isinstance(former, dict):
        for (key, value), (key_before, before) in zip(newest.items(), former.items()):
            place = f"{where}.{key}" if where else str(key)
            yield from _differences(key, key_before, place + " (the key)")
            yield from _differences(value, before, place)
    elif isinstance(newest, list) and isinstance(former, list):
        for position, (item, before) in enumerate(zip(newest, former)):
            yield from _differences(item, before, "%s[%d]" % (where, position))
    elif isinstance(newest, str) and isinstance(former, str):
        message = (
            f"is not quoted: the CDI library up to 1.1.0 (containerd 1.7 to 2.3) reads {former!r}, and from 1.1.1 on "
            f"(containerd 2.4) {newest!r}: quote the {'name' if where.endswith('].name') else 'text'}"
        )
        yield where, Problem(where, message)
