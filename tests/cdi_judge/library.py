"""What the CDI reference library reads in spec files, and what this project reads, in one form to compare."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from node_device_plugin.cdi.directories import SpecFile
from node_device_plugin.cdi.fields import SPEC, Field
from node_device_plugin.cdi.resolution import Resolution

#: Fields whose zero the library tells from a field that is left out.
_KEPT = ("fileMode", "uid", "gid", "timeout", "intelRdt", "containerEdits")
_COMMON = ("annotations", "containerEdits")

#: Each device by its qualified name, with what its file has for all devices.
Devices = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]


class Verdict(NamedTuple):
    """error: empty if the library accepts the file."""

    error: str
    devices: Devices


class Library(NamedTuple):
    """A judge. accepts: the highest CDI version that it knows. former: whether it is older than 1.1.1."""

    judge: Path
    accepts: str
    former: bool

    def read(self, paths: Sequence[Path]) -> dict[str, Verdict]:
        """What the library reads in files and directories, by file."""
        done = subprocess.run([self.judge, *paths], stdout=subprocess.PIPE, check=True)
        *lines, last = (json.loads(line) for line in done.stdout.split(b"\n") if line)
        assert last == {"version": self.accepts}
        return {
            line["path"]: Verdict(
                line["error"], {name: (device, line["common"]) for name, device in line.get("devices", {}).items()}
            )
            for line in lines
        }


def ours(files: Sequence[SpecFile]) -> dict[str, Devices]:
    """The devices that this project reads, by file."""
    found: dict[str, dict[str, Any]] = {file.path: {} for file in files}
    names = Resolution(files)
    for name, file in names.files.items():
        spec = file.spec or {}
        (device,) = (each for each in spec["devices"] if each["name"] == name.partition("=")[2])
        assert device["containerEdits"] == names.edits[name]
        common = {"containerEdits": {}, **{key: spec[key] for key in _COMMON if spec.get(key) is not None}}
        found[file.path][name] = as_printed(device, SPEC["devices"].fields or {}), as_printed(common, SPEC)
    return dict(found)


def as_printed(values: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Part of a spec as the library prints it: without empty fields that may be left out."""
    result = {}
    for key, value in values.items():
        field = fields[key]
        if isinstance(value, list) and field.fields is not None:
            value = [as_printed(item, field.fields) for item in value]
        elif isinstance(value, dict) and field.fields is not None:
            value = as_printed(value, field.fields)
        elif isinstance(value, dict):
            # An annotation may be null, which the library reads as empty.
            value = {name: text or "" for name, text in value.items()}
        if value is not None and (value or field.required or (key in _KEPT and value != "")):
            result[key] = value
    return result
