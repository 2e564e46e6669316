"""What a container really got: its process's view, read from the node through /proc (the image needs no shell), and
the runtime's word for its annotations."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Union

from ..declaration.expectations import Expectation
from . import container_view
from .container_view import Seen, View


def mismatches(pid: int, expectation: Expectation) -> List[str]:
    """In what the process ``pid`` falls short of ``expectation``: one sentence each, expected and found.

    Raises ProcessLookupError where the process has gone.
    """
    root = "/proc/%d/root" % pid
    try:
        view = View(_environment(pid), _mounts(pid), lambda path: container_view.look_at(root + path))
    except FileNotFoundError as error:
        raise ProcessLookupError("the container's process %d has ended" % pid) from error
    return container_view.mismatches(view, expectation, _on_host)


def annotation_mismatches(found: Mapping[str, str], expectation: Expectation) -> List[str]:
    """The same for annotations. found: what the runtime says of the container."""
    return [
        "annotation %s: expected %r, found %s" % (name, value, repr(found[name]) if name in found else "nothing")
        for name, value in expectation.annotations.items()
        if found.get(name) != value
    ]


def _on_host(path: str) -> Union[Seen, str]:
    """What a path of the node leads to."""
    try:
        return container_view.seen_in(os.stat(path))
    except OSError as error:
        return (error.strerror or "").lower()


def _environment(pid: int) -> Dict[str, str]:
    with open("/proc/%d/environ" % pid, "rb") as file:
        assignments = os.fsdecode(file.read()).split("\0")
    return dict(assignment.split("=", 1) for assignment in assignments if "=" in assignment)


def _mounts(pid: int) -> Dict[str, str]:
    with open("/proc/%d/mountinfo" % pid, "rb") as file:
        return container_view.mount_points(file.read())
