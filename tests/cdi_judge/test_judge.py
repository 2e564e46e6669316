"""The CDI reference library reads each spec that unit tests render or judge, and agrees with this project."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from library import Library, ours

from node_device_plugin.cdi.directories import check_directories, check_file

CHECKOUT = Path(__file__).parents[2]
HERE = Path(__file__).parent
#: The lists of mappings among container edits.
LISTS = ("deviceNodes", "hooks", "mounts", "netDevices")
#: The tests that render or judge specs. A spec of another test is one of these, or made by the same code.
TESTS = [
    "plugin/tests/cdi",
    "plugin/tests/devices/discovery",
    *(f"plugin/tests/devices/test_{name}.py" for name in ("health", "our_specs", "scanner")),
    "plugin/tests/test_complaints.py",
    "plugin/tests/declaration",
    # Configurations by chance.
    "plugin/tests/faults/test_configuration_by_chance.py",
    *(f"tests/unit/plugins/plugin_utils/test_{name}.py" for name in ("rendered_specs", "declaration")),
    "tests/unit/roles/test_unit.py",
    "tests/unit/project/test_command_blocks.py",
    # Tests of time show nothing new here, and can fail on a busy machine.
    *("-k", "not that_hang and not slow and not waits"),
]


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[str, Any]]]:
    kept = tmp_path_factory.mktemp("records")
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "recorder", "-p", "no:cacheprovider", *TESTS],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": path, "CDI_RECORDS": str(kept)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return [(path.parent, json.loads(path.read_text())) for path in sorted(kept.glob("*/record.json"))]


def test_the_library_and_this_project_agree(newest: Library, records: list[tuple[Path, dict[str, Any]]]) -> None:
    differences = yaml.safe_load((HERE / "differences.yml").read_text())
    said = newest.read([record / "specs" for record, _ in records])
    shown, unknown = set(), []
    files = {True: 0, False: 0}
    for record, data in records:
        crash = said.get(str(record / "specs"))
        if crash is not None:
            # One file costs all others their runtime.
            told = [problem["message"] for problems in data["files"].values() for problem in problems]
            assert "panic" in crash.error
            assert any("crashes containerd" in message for message in told), (data["test"], told)
            continue
        for name, problems in data["files"].items():
            ours = [f"{problem['where']}: {problem['message']}" for problem in problems]
            library = said[str(record / "specs" / name)].error
            files[bool(library)] += 1
            if bool(ours) == bool(library):
                continue
            matching = [
                next((number for number, known in enumerate(differences) if matches(known, one, library)), None)
                for one in ours or [""]
            ]
            shown.update(matching)
            if None in matching:
                unknown.append(f"{data['test']}: {name}: we say {ours}, the library says {library!r}")
    assert not unknown, "\n".join(unknown)
    assert shown == set(range(len(differences))), "differences.yml has entries that no test shows any more"
    assert {data["how"] for _, data in records} == {"rendered", "judged", "file", "directory"}
    # Else the recorder misses what tests do.
    assert files[False] >= 100
    assert files[True] >= 50


def matches(known: dict[str, str], ours: str, library: str) -> bool:
    return all(
        bool(known[key]) == bool(said) and re.search(known[key], said)
        for key, said in (("ours", ours), ("library", library))
    )


def test_names_and_edits_are_those_of_the_library(library: Library, records: list[tuple[Path, dict[str, Any]]]) -> None:
    said = library.read([record / "specs" for record, _ in records])
    devices = 0
    for record, data in records:
        files = check_directories([str(record / "specs")], library.accepts)
        by_path = {file.path: file for file in files}
        unclear = {name for file in files for name in file.unclear}
        crash = said.get(str(record / "specs"))
        if crash is not None:
            # One file costs all others their runtime.
            assert "panic" in crash.error
            assert any("crashes containerd" in str(problem) for file in files for problem in file.refusals)
            continue
        for path, read in ours(files).items():
            if by_path[path].refusals:
                continue
            theirs = {name: each for name, each in said[path].devices.items() if name not in unclear}
            assert read.keys() == theirs.keys(), (data["test"], path, said[path].error)
            assert read == theirs or (library.former and by_path[path].warnings), (data["test"], path)
            devices += len(read)
    assert devices >= 300


def test_what_crashes_the_library_is_what_we_say(newest: Library, former: Library, tmp_path: Path) -> None:
    kinds = ["v/cls", "vendor.com/x", "v/x", "v/a/b", "1/x", "vendor.com/1", "x", "/x", "x/", "vendor.com/-", "a.b/cd"]
    edits = {"env": ["A=b"]}
    for number, kind in enumerate(kinds):
        device = {"name": "d", "containerEdits": edits}
        document = {"cdiVersion": "0.6.0", "kind": kind, "devices": [device]}
        (tmp_path / f"kind{number}.json").write_text(json.dumps(document))
    for key, value in itertools.product(["env", *LISTS, "additionalGids"], ([None], [{}], None)):
        version = "1.1.0" if key == "netDevices" else "0.7.0"
        for place in ("device", "all"):
            device = {"name": "d", "containerEdits": {**edits, **({key: value} if place == "device" else {})}}
            document = {"cdiVersion": version, "kind": "vendor.com/class", "devices": [device]}
            if place == "all":
                document["containerEdits"] = {key: value}
            (tmp_path / f"{key}-{place}-{json.dumps(value)}.json").write_text(json.dumps(document))
    files = {path: check_file(str(path), None) for path in sorted(tmp_path.iterdir())}
    judged = [library.read(list(files)) for library in (newest, former)]
    panics = {path for path in files if any("panic" in said[str(path)].error for said in judged)}
    assert {path for path, file in files.items() if file.crashes} == panics
    assert len(panics) == 4 + 2 * len(LISTS)


def test_fields_that_a_library_does_not_know(library: Library, tmp_path: Path) -> None:
    """Also if they are empty. Each library judges as the runtime that accepts its version."""
    of_rdt = itertools.product(("schemata", "enableMonitoring", "enableCMT"), (None, False, []))
    rdts = (None, {}, {"closID": "/"}, {"closID": "a/b"}, *({key: value} for key, value in of_rdt))
    lists = itertools.product((*LISTS, "env", "additionalGids"), (None, []))
    edits = [{key: value} for key, value in [*lists, *(("intelRdt", rdt) for rdt in rdts)]]
    for number, (version, each) in enumerate(itertools.product(["0.5.0", "0.7.0"], edits)):
        device = {"name": "d", "containerEdits": {"env": ["A=b"]}}
        document = {"cdiVersion": version, "kind": "vendor.com/class", "devices": [device]}
        (tmp_path / f"{number}-all.json").write_text(json.dumps({**document, "containerEdits": each}))
        device["containerEdits"].update(each)
        (tmp_path / f"{number}-device.json").write_text(json.dumps({**document, "annotations": {}}))
    files = {path: check_file(str(path), library.accepts) for path in tmp_path.iterdir()}
    said = library.read(list(files))
    assert {path for path, file in files.items() if file.refusals} == {path for path in files if said[str(path)].error}


def test_what_we_render_is_accepted(newest: Library, records: list[tuple[Path, dict[str, Any]]]) -> None:
    rendered = [record / "specs" for record, data in records if data["how"] == "rendered"]
    assert {path: verdict.error for path, verdict in newest.read(rendered).items() if verdict.error} == {}


def test_the_judge_refuses_what_is_no_spec(library: Library, tmp_path: Path) -> None:
    broken, missing = tmp_path / "broken.json", tmp_path / "missing.json"
    broken.write_text("{")
    said = library.read([broken, missing, tmp_path])
    assert "failed to parse CDI Spec" in said[str(broken)].error
    assert "no such file" in said[str(missing)].error
