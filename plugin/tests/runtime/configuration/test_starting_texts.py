"""The starting configurations of tests/runtimes that are one file, with a containerd 1.7 of this test's own.

`make runtimes` asks real containerds about all of them. These tests need none, so they run on each Python, too.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest
import yaml

from node_device_plugin.runtime import configuration
from node_device_plugin.runtime.configuration.cdi import Change
from node_device_plugin.runtime.configuration.diff import diff
from node_device_plugin.support.toml import tomllib

DIRECTORY = Path(__file__).parents[4] / "tests" / "runtimes" / "configurations"
CRI = "io.containerd.grpc.v1.cri"
DEFAULTS = {"enable_cdi": False, "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"]}
VERSION = "1.7.24"


def of_1_7(expect):
    """What is expected of a containerd 1.7."""
    return {str(version): outcome for version, outcome in expect.items() if str(version) in ("1.6", "1.7")}


def cases():
    """Each case's file with what is expected of it, except those that are refused."""
    for entry in yaml.safe_load((DIRECTORY / "index.yml").read_text(encoding="utf-8")):
        outcomes = of_1_7(entry["expect"])
        outcome = outcomes.get("1.7", outcomes.get("1.6"))
        files = entry.get("files", {"/etc/containerd/config.toml": f"{entry['name']}.toml"})
        names = [name for name in files.values() if name not in ("default", "generated")]
        if len(names) == len(files) == 1 and not entry.get("generator") and "refused" not in outcome:
            yield pytest.param(names[0], outcome, id=entry["name"])


CASES = list(cases())


def dump(text):
    """What the containerd makes of a text: its defaults, and the text's keys."""
    data = tomllib.loads(text)
    plugins = data.get("plugins", {})
    table = {**DEFAULTS, **plugins.get("cri" if data.get("version", 1) == 1 and "cri" in plugins else CRI, {})}
    lines = [f"{key} = {json.dumps(table[key])}" for key in DEFAULTS]
    return "\n".join(["version = 2", f'[plugins."{CRI}"]', *lines, ""])


def adapter(text):
    path = "/etc/containerd/config.toml"
    config = {"path": path, "real_path": path, "exists": True, "content": text, "effective": dump(text), "files": {}}
    runtime = {"socket": "/s", "name": "containerd", "executable": "/bin/containerd", "version": VERSION}
    made = configuration.of({**runtime, "config": config})
    made.effective_with = lambda text, _drop_in: dump(text)
    return made


def changed_lines(change):
    texts = [text.split("\n") for text in (change.before, change.after)]
    return [line for line in difflib.unified_diff(*texts, n=0) if not line.startswith(("---", "+++", "@@"))]


def text_of(name):
    return (DIRECTORY / name).read_bytes().decode()


@pytest.mark.parametrize(("name", "outcome"), CASES)
def test_plan_and_undo(name, outcome):
    text = text_of(name)
    change = adapter(text).plan()
    if outcome == "untouched":
        assert change is None
        return
    assert changed_lines(change) == outcome["edited"]
    # A second run has nothing to do.
    assert adapter(change.after).plan() is None
    # Back to the byte, and by the keys if somebody has changed the file since.
    assert adapter(change.after).undo(change.path, True, text) == Change(change.path, change.after, text)
    later = change.after + ("" if change.after.endswith("\n") else "\n") + "# later\n"
    undone = adapter(later).undo(change.path, False, text).after
    assert undone.endswith("# later\n")
    assert tomllib.loads(dump(undone)) == tomllib.loads(dump(text))


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.toml")), ids=lambda path: path.name)
def test_a_diff_has_no_text_of_others(path):
    """Each text of a file but directories and the names of tables becomes a secret."""
    text = path.read_bytes().decode("utf-8", "replace")
    for quote in "\"'":
        parts = text.split(quote)
        for number in range(1, len(parts), 2):
            if not parts[number].startswith(("/", "io.containerd")):
                parts[number] = "CANARY"
        text = quote.join(parts)
    assert "CANARY" not in diff(Change("/c.toml", text, "")) + diff(Change("/c.toml", "", text))


def test_the_table_has_such_cases():
    assert len(CASES) > 40
