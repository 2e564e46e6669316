"""A pytest plugin: keeps each CDI spec that tests render, and each one that `cdi check` judges, with our verdict.

Load it with ``-p recorder`` and this directory in PYTHONPATH; CDI_RECORDS names the directory for the records. Each one
is a directory: ``record.json`` (the test, and our problems by file name), and the files below ``specs/``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("node_device_plugin", "ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin")
#: Bytes; tests with a hundred thousand devices show nothing that one with a few does not.
LARGEST = 1 << 18
#: The version of CDI that the judge knows: it reads each file as such a runtime does.
READER = "1.1.0"

Problems = list[dict[str, str]]


def keep(files: Mapping[str, tuple[bytes, Problems]], how: str) -> None:
    """Write one record; the same content is kept once."""
    if not files or any(len(content) > LARGEST for content, _ in files.values()):
        return
    digest = hashlib.sha256(repr(sorted((name, content) for name, (content, _) in files.items())).encode())
    record = Path(os.environ["CDI_RECORDS"]) / digest.hexdigest()[:16]
    if record.exists():
        return
    (record / "specs").mkdir(parents=True)
    for name, (content, _) in files.items():
        (record / "specs" / name).write_bytes(content)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    data = {"test": test, "how": how, "files": {name: problems for name, (_, problems) in files.items()}}
    (record / "record.json").write_text(json.dumps(data))


def listed(problems: Any) -> Problems:
    return [{"where": problem.where, "message": problem.message} for problem in problems]


def wrap(module: Any, name: str, after: Callable[..., None]) -> None:
    """Call ``after`` with the result and the arguments of each call that came back."""
    real = getattr(module, name)

    @functools.wraps(real)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        result = real(*arguments, **named)
        after(result, *arguments, **named)
        return result

    setattr(module, name, wrapper)


def _has_names(spec: Any) -> bool:
    nodes = [node for device in spec["devices"] for node in device["containerEdits"].get("deviceNodes", ())]
    return any(isinstance(node.get(key), str) for node in nodes for key in ("uid", "gid"))


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    for package in PACKAGES:
        cdi = importlib.import_module(f"{package}.declaration.cdi")
        spec_module = importlib.import_module(f"{package}.cdi.spec")
        directories = importlib.import_module(f"{package}.cdi.directories")
        resolution = importlib.import_module(f"{package}.cdi.resolution")
        readings = importlib.import_module(f"{package}.cdi.readings")
        _record(cdi, spec_module, directories, resolution.Resolution, readings.read)


def _record(
    cdi: Any, spec_module: Any, directories: Any, made_of: Callable[[Any], Any], read: Callable[[Any, str], Any]
) -> None:
    # A test may count what is parsed, so the recorder parses by the function of before.
    check_directories, check_content = directories.check_directories, directories.check_content

    def rendered(spec: Any, *_: Any) -> None:
        # With names of users and groups, the roles render the spec again, with the node's numbers.
        if spec is not None and not _has_names(spec):
            # Problems are not asked for: what we render is to be accepted.
            keep({"spec.json": (cdi.serialise(spec).encode(), [])}, "rendered")

    def judged(_: Any, spec: Any, accepted: Any = None) -> None:
        try:
            content = json.dumps(spec).encode()
        except (TypeError, ValueError):
            return
        keep({"spec.json": (content, listed(read(spec, READER).refusals))}, "judged")

    def judged_file(_: Any, path: str, accepted: Any, kinds: Any = None) -> None:
        name = os.path.basename(path)
        if name.endswith(directories._ENDINGS) and os.path.isfile(path):
            content = Path(path).read_bytes()
            keep({name: (content, listed(check_content(path, content, READER).problems))}, "file")

    def judged_directories(_: Any, places: Any, accepted: Any) -> None:
        for place in places:
            specs = made_of(check_directories([place], READER))
            keep(
                {
                    os.path.basename(file.path): (Path(file.path).read_bytes(), listed(specs.problems(file)))
                    for file in specs.every.values()
                    if file.path.endswith(directories._ENDINGS) and os.path.isfile(file.path)
                },
                "directory",
            )

    wrap(cdi, "render_spec", rendered)
    wrap(spec_module, "spec_problems", judged)
    wrap(directories, "check_file", judged_file)
    wrap(directories, "check_directories", judged_directories)
