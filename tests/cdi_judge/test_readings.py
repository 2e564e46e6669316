"""Text, numbers and booleans without quotes, and whole documents: what both libraries read alike is what we read.

Where the libraries differ, we report a problem. If a device's name differs, we have it in no reading.
"""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from library import Devices, Library, ours

from node_device_plugin.cdi.directories import check_directories, check_file

HERE = Path(__file__).parent
DOCUMENTS: dict[str, dict[str, str]] = yaml.safe_load((HERE / "documents.yml").read_text())

#: A spec with each field that a scalar may have, as the rest of a device's edits.
PLACES = {
    "cdiVersion": "cdiVersion: %s\nkind: a.com/npu\ndevices: [{name: d, containerEdits: {env: [A=b]}}]\n",
    "kind": 'cdiVersion: "0.7.0"\nkind: %s\ndevices: [{name: d, containerEdits: {env: [A=b]}}]\n',
    "name": 'cdiVersion: "0.7.0"\nkind: a.com/npu\ndevices: [{name: %s, containerEdits: {env: [A=b]}}]\n',
    **{
        field: 'cdiVersion: "0.7.0"\nkind: a.com/npu\ndevices:\n- name: d\n  containerEdits: {%s}\n' % edits
        for field, edits in {
            "env": "env: [A=b, %s]",
            "path": "deviceNodes: [{path: %s}]",
            "hostPath": "deviceNodes: [{path: /dev/x, hostPath: %s}]",
            "type": "deviceNodes: [{path: /dev/x, type: %s}]",
            "permissions": "deviceNodes: [{path: /dev/x, permissions: %s}]",
            "major": "deviceNodes: [{path: /dev/x, type: c, major: %s}]",
            "fileMode": "deviceNodes: [{path: /dev/x, fileMode: %s}]",
            "uid": "deviceNodes: [{path: /dev/x, uid: %s}]",
            "args": "hooks: [{hookName: prestart, path: /x, args: [x, %s]}]",
            "timeout": "hooks: [{hookName: prestart, path: /x, timeout: %s}]",
            "options": "mounts: [{hostPath: /a, containerPath: /b, options: [%s]}]",
            "closID": "intelRdt: {closID: %s}",
            "enableCMT": "intelRdt: {enableCMT: %s}",
            "additionalGids": "additionalGids: [%s, 7]",
        }.items()
    },
    "enableMonitoring": "cdiVersion: 1.1.0\nkind: a.com/npu\n"
    "devices: [{name: d, containerEdits: {env: [A=b], intelRdt: {enableMonitoring: %s}}}]\n",
    "annotation": 'cdiVersion: "0.7.0"\nkind: a.com/npu\nannotations: {a: %s}\n'
    "devices: [{name: d, containerEdits: {env: [A=b]}}]\n",
    "annotation's name": 'cdiVersion: "0.7.0"\nkind: a.com/npu\nannotations: {%s : a}\n'
    "devices: [{name: d, containerEdits: {env: [A=b]}}]\n",
}
#: Fields that only one of the libraries knows.
OF_FORMER, OF_NEWEST = ("enableCMT",), ("enableMonitoring",)

#: A "|" stands for a space.
SCALARS = (HERE / "scalars.txt").read_text().split()
#: What the libraries read alike, and we refuse or call unclear.
ONLY_OURS = {
    # Negative numbers, with which no container starts (differences.yml).
    *((field, scalar) for field in ("major", "timeout") for scalar in ["-1", "-010", "-0o7", "-0x1F", "-0b1", "-0.0"]),
    # One judge knows each of these fields. Up to 1.1.0, a boolean has no quotes; from 1.1.1 on, !!bool is YAML 1.2's.
    *(("enableCMT", scalar) for scalar in ("!!bool|yes", "!!bool|on")),
    *(("enableMonitoring", scalar) for scalar in ("'on'", '"on"', "!!str|on", "!foo|on")),
    # As a key, all libraries write them alike; keys are read like other text, which they do not.
    *(("annotation's name", scalar) for scalar in (".nan", "-.inf", ".inf")),
}


def judge(newest: Library, former: Library, directory: Path, texts: Sequence[str], ending: str) -> list[list[bool]]:
    """Check each text as a file, and return whether the libraries read it alike, and whether we accept it."""
    paths = [directory / str(number) / f"spec{ending}" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.parent.mkdir(parents=True)
        path.write_bytes(text.encode())
    of_newest, of_former = newest.read(paths), former.read(paths)
    found = []
    for path, text in zip(paths, texts, strict=True):
        file = check_file(str(path), None)
        names = [error or devices for error, devices in (of_newest[str(path)], of_former[str(path)])]
        (read,) = ours(check_directories([str(path.parent)], None)).values()
        only = text.count("enableMonitoring") - text.count("enableCMT")
        readings = [each for each, skipped in zip(names, (only < 0, only > 0), strict=True) if not skipped]
        is_alike = all(isinstance(each, str) for each in readings) or all(each == readings[0] for each in readings)
        _compare(text, readings, is_alike, read, bool(file.refusals), bool(file.warnings))
        found.append([is_alike and not isinstance(readings[0], str), not file.refusals and not file.warnings])
    return found


def _compare(
    text: str, readings: Sequence[str | Devices], is_alike: bool, read: Devices, is_refused: bool, is_doubted: bool
) -> None:
    if is_refused:
        assert read == {}, text
    elif is_alike:
        assert not isinstance(readings[0], str), (text, readings)
        assert read == readings[0], text
    else:
        assert is_doubted, (text, readings)
        assert not any(isinstance(each, str) for each in readings), (text, readings)
        for name, device in read.items():
            assert all(name in each for each in readings), (text, name)
            assert device == readings[0][name], (text, name)


@pytest.mark.parametrize("ending", [".yaml", ".json"])
def test_a_scalar_in_each_field(newest: Library, former: Library, tmp_path: Path, ending: str) -> None:
    cases = list(itertools.product(PLACES, SCALARS))
    texts = [PLACES[field] % scalar.replace("|", " ") for field, scalar in cases]
    found = judge(newest, former, tmp_path, texts, ending)
    assert {case for case, each in zip(cases, found, strict=True) if each == [True, False]} == ONLY_OURS
    assert collections.Counter(map(tuple, found))[True, True] >= 500


@pytest.mark.parametrize("ending", [".yaml", ".json"])
def test_documents(newest: Library, former: Library, tmp_path: Path, ending: str) -> None:
    found = judge(newest, former, tmp_path, [text for each in DOCUMENTS.values() for text in each.values()], ending)
    assert found
    kinds = [kind for kind, texts in DOCUMENTS.items() for _ in texts]
    expected = collections.defaultdict(lambda: (False, False), {"alike": (True, True), "only ours": (True, False)})
    assert [tuple(each) for each in found] == [expected[kind] for kind in kinds]


def test_documents_by_chance(newest: Library, former: Library, tmp_path: Path) -> None:
    """Small changes to good specs. The seed is fixed, so that a failure comes again."""
    chance = random.Random(32)
    good = list(DOCUMENTS["alike"].values())
    parts = [*"-?:,[]{}#&*!|>'\"%@`\\/ \t\n~.=<+_0128xeE\u0085\u2028\ufeff\x7f\u00a0"]
    parts += [
        "\\u",
        "\\/",
        "\\ud83d",
        ": ",
        "- ",
        "!!str ",
        "!!int ",
        "&a ",
        "*a",
        "null",
        "yes",
        "0x",
        "1e3",
        "---\n",
        "<<: ",
    ]
    texts = []
    for _ in range(3000):
        text = chance.choice(good)
        for _ in range(chance.choice([1, 1, 2])):
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice(parts) + text[at + chance.choice([0, 0, 1, 2]) :]
        texts.append(text)
    found = collections.Counter(map(tuple, judge(newest, former, tmp_path, texts, ".yaml")))
    # We refuse little of what both libraries read alike.
    assert found[True, True] >= 10 * found[True, False]
    assert found[False, False] >= 300
