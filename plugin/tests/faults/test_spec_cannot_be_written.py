"""A CDI spec that cannot be written: the old file stays whole, nothing half-written is left, and the plugin says so."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cdi import writer
from node_device_plugin.declaration import parse_resources
from node_device_plugin.declaration.cdi import file_name

from ..cdi import specs

NAME = "example.com/found"
_PLAIN = {"id": "a", "nodes": [{"path": "/dev/null"}]}


def resources(*ids: str) -> Any:
    devices = [{**_PLAIN, "id": device_id} for device_id in ids]
    return parse_resources([{"name": NAME, "devices": devices, "discover": {"paths": ["/dev/nothing-*"]}}])


def _filling() -> Any:
    """An os.write of a disk that takes a part, and then has no room."""
    write, taken = os.write, []

    def fills(descriptor: int, content: Any) -> int:
        if taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken.append(content)
        return write(descriptor, content[:10])

    return fills


def _read_only(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.mark.parametrize(
    ("where", "function", "says"),
    [("os.write", _filling(), "No space left on device"), ("writer.replace", _read_only, "Read-only file system")],
)
def test_the_old_spec_stays_whole_and_the_next_try_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, function: Any, says: str
) -> None:
    """Complaint 10: CDI specs are lost, or cannot be read."""
    directory = str(tmp_path)
    path = tmp_path / file_name(NAME)
    assert specs.write(resources("a"), directory) == {}
    before = path.read_bytes()
    with monkeypatch.context() as fault:
        fault.setattr({"os": os, "writer": writer}[where.split(".")[0]], where.split(".")[1], function)
        problems = specs.write(resources("a", "b"), directory)
    assert list(problems) == [NAME]
    assert says in problems[NAME]
    assert path.read_bytes() == before
    assert os.listdir(directory) == [path.name]
    assert specs.write(resources("a", "b"), directory) == {}
    assert [device["name"] for device in json.loads(path.read_text())["devices"]] == ["a", "b"]
    assert path.stat().st_mode & 0o777 == 0o644
