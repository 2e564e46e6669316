"""Every starting configuration against every real containerd: plan, effect, and the way back to the byte.

No Ansible runs here: the adapters plan, containerd itself says what it makes of the old and of the new files, and the
comparison of the two is this test's own.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cases import DIRECTORY, Case, cases
from containerds import ALWAYS_ON, CONFIG, Containerd
from remedies import REMEDIES, carried_out, remedies

from node_device_plugin.declaration.cdi import version_tuple
from node_device_plugin.runtime.configuration.cdi import Change, UnsupportedConfig

# Seconds, with an image that is built before.
pytestmark = pytest.mark.timeout(1200)

CASES = cases()
DIRS = {"/etc/cdi", "/var/run/cdi"}
#: The first containerd that passes CDI names on.
OLDEST = (1, 7, 2)
#: The remedies that this run has carried out.
CARRIED_OUT: set[str] = set()
# Every kind of edit that both 1.7 and 2.1 get: of a key, of a list, of an inline table, of a drop-in.
UPGRADED = {
    "turned-off",
    "own-dirs",
    "no-dirs",
    "windows",
    "quoted-keys",
    "inline-table-of-cri",
    "drop-in-turns-off",
    "imports-nested-glob",
}
# The two that hold CDI's keys: a containerd 2 shows the newer alone, and no other table has keys of these names.
TABLES = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")


def leaves(data: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value of nested tables, by its path."""
    if not isinstance(data, dict):
        return {path: data}
    return {leaf: value for key, below in data.items() for leaf, value in leaves(below, (*path, key)).items()}


def arguments(case: Case) -> list[str]:
    return [] if case.config == CONFIG else ["--config", case.config]


def outcome(node: Containerd, case: Case, files: dict[str, bytes] | None = None) -> tuple[Any, Change | None]:
    """What is planned, in the form of the table. files: the case's, if not given."""
    node.place(case.contents(node) if files is None else files, case.links)
    adapter = node.adapter(*arguments(case))
    obstacles = list(adapter.obstacles(cdi=True))
    if obstacles:
        return {"refused": " ".join(obstacles)}, None
    try:
        change = adapter.plan()
    except UnsupportedConfig as refusal:
        return {"refused": str(refusal)}, None
    if change is None:
        return "untouched", None
    root = case.links.get(case.config, case.config)
    return {"edited": diff(change), **({} if change.path == root else {"file": change.path})}, change


def diff(change: Change) -> list[str]:
    """Every line that went or came."""
    # Ends of lines are the file's own, so that carriage returns count.
    texts = [(text or "").split("\n") for text in (change.before, change.after)]
    return [line for line in difflib.unified_diff(*texts, n=0) if not line.startswith(("---", "+++", "@@"))]


def written(
    node: Containerd, case: Case, path: str, text: str | None, files: dict[str, bytes] | None = None
) -> dict[str, bytes]:
    """The node's files with that one; a generated root file with what is generated from it."""
    files = case.contents(node) if files is None else dict(files)
    if text is None:
        del files[case.real(path)]
    else:
        files[case.real(path)] = text.encode()
    if path == case.generator:
        files[case.config] = case.generated(files)
    return files


def configuration(node: Containerd, case: Case, files: dict[str, bytes]) -> dict[str, Any]:
    """What containerd makes of the files; imports apart, where 1.7 lists the root file."""
    node.place(files, case.links)
    facts = node.facts(*arguments(case))["config"]
    assert facts["problem"] is None
    # 1.7 prints control characters as they are.
    found = tomllib.loads(facts["effective"].replace("\x7f", ""))
    found.pop("imports", None)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plan_effect_and_undo(containerd, case):
    """Provisioning, complaints 1 (others' settings stay, the key is in its own table) and 4 (undo leaves nothing)."""
    expected = case.expected(containerd.version)
    found, change = outcome(containerd, case)
    if isinstance(expected, dict) and "refused" in expected:
        assert isinstance(found, dict), found
        assert expected["refused"] in found.get("refused", found)
        return
    assert found == expected
    if change is None:
        return

    # The wanted keys changed, and nothing else did.
    originals = case.contents(containerd)
    before = configuration(containerd, case, originals)
    files = written(containerd, case, change.path, change.after)
    after = configuration(containerd, case, files)
    changed = {path: value for path, value in leaves(after).items() if leaves(before).get(path) != value}
    assert changed, "containerd does not read what was edited"
    assert set(changed) <= {("plugins", table, key) for table in TABLES for key in ("enable_cdi", "cdi_spec_dirs")}
    assert set(leaves(before)) - set(leaves(after)) == set()
    (table,) = {path[1] for path in changed}
    always_on = version_tuple(containerd.version) >= ALWAYS_ON
    assert after["plugins"][table].get("enable_cdi") is (None if always_on else True)
    assert {
        directory.rstrip("/").replace("/var/run", "/run") for directory in after["plugins"][table]["cdi_spec_dirs"]
    } >= {directory.replace("/var/run", "/run") for directory in DIRS}

    # A second run has nothing to do.
    adapter = containerd.adapter(*arguments(case))
    assert adapter.plan() is None

    # Undo, byte for byte.
    undo = adapter.undo(change.path, True, change.before)
    assert undo == Change(change.path, change.after, change.before)
    original = originals.get(case.real(change.path))
    assert (None if undo.after is None else undo.after.encode()) == original

    # Undo where somebody has changed the file since: their change stays, and containerd has what it had.
    if change.before is None and change.path != case.config:
        # A drop-in of ours goes, whatever was made of it.
        return
    end = "" if change.after.endswith("\n") else "\n"
    later = f"{change.after}{end}# later\n"
    files = written(containerd, case, change.path, later)
    containerd.place(files, case.links)
    adapter = containerd.adapter(*arguments(case))
    undo = adapter.undo(change.path, False, change.before)
    assert undo.after.endswith(f"{end}# later\n")
    assert configuration(containerd, case, written(containerd, case, change.path, undo.after)) == before


def refusal(found: Any) -> str | None:
    return found["refused"] if isinstance(found, dict) and "refused" in found else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_remedy_of_a_refusal_turns_cdi_on(containerd, case):
    """A message promises what was done here: then the role succeeds, and a daemon with the files serves CRI."""
    message = refusal(outcome(containerd, case)[0])
    if message is None:
        return
    if version_tuple(containerd.version) < OLDEST:
        # The other way out is another containerd: the rest of this table.
        assert "upgrade it to 1.7.2 or later" in message
        assert "or set injection: device_nodes for the resources" in message
        adapter = containerd.adapter(*arguments(case))
        assert [said for said in adapter.obstacles(cdi=False) if "CDI" in said or "upgrade" in said] == []
        return
    first = remedies(message)
    assert first, f"no remedy of this message was carried out: {message}"
    for remedy in first:
        files, found, change = case.contents(containerd), message, None
        for _round in range(5):
            name, match = remedy
            files = carried_out(files, name, match, case)
            CARRIED_OUT.add(name)
            planned, change = outcome(containerd, case, files)
            found = refusal(planned)
            if found is None:
                break
            # Two things were wrong.
            remedy = remedies(found)[0]
        assert found is None, f"{first[0][0]}: {found}"
        if change is not None:
            files = written(containerd, case, change.path, change.after, files)
        containerd.place(files, case.links)
        adapter = containerd.adapter(*arguments(case))
        assert adapter.cdi.suffices
        started = containerd.start(*arguments(case))
        assert started["serves"], f"{remedy[0]}: {started['said']}"


def test_a_daemon_that_does_not_serve_cri_is_seen(containerd):
    """The judge of the remedies: of these files `config dump` says nothing wrong."""
    if version_tuple(containerd.version) < OLDEST:
        return
    runtime = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "none-such"\n'
    for text, serves in (("version = 2\n", True), (runtime, False), ("version = 2\n[plugins\n", False)):
        containerd.place({CONFIG: text.encode()})
        started = containerd.start()
        assert started["serves"] is serves, started["said"]


def test_an_upgrade_of_k3s_turns_cdi_on():
    """The remedy that a message names first: the same files with containerd 2."""
    told = [case for case in CASES if case.name in ("k3s", "rke2", "k3s-base-template")]
    assert len(told) == 3
    for case in told:
        assert "refused" in case.expected("1.7.24")
        assert case.expected("2.0.0") == "untouched", case.name


@pytest.mark.parametrize("case", [case for case in CASES if case.name in UPGRADED], ids=lambda case: case.name)
def test_an_edit_outlives_an_upgrade_of_containerd(upgrade, case):
    """The next run has nothing to do, and an uninstall gives the former files back, byte for byte."""
    older, newer = upgrade
    _found, change = outcome(older, case)
    newer.place(written(older, case, change.path, change.after), case.links)
    adapter = newer.adapter(*arguments(case))
    assert list(adapter.obstacles(cdi=True)) == []
    assert adapter.plan() is None
    undo = adapter.undo(change.path, True, change.before)
    assert undo == Change(change.path, change.after, change.before)


def test_the_table_is_whole():
    named = {name for case in CASES for name in (*case.files.values(), case.base)} - {"default", "generated", None}
    assert named == {path.name for path in DIRECTORY.iterdir()} - {"index.yml"}
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.name for case in CASES} >= UPGRADED


def test_containerd_1_6_drops_the_key_in_silence(containerd):
    """Why it is refused: it would look as if CDI were on."""
    if version_tuple(containerd.version) >= (1, 7, 0):
        return
    text = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'
    containerd.place({CONFIG: text.encode()})
    config = containerd.facts()["config"]
    assert config["problem"] is None
    assert "enable_cdi" not in config["effective"]
    assert Path(CONFIG).name in config["path"]


def test_every_remedy_was_carried_out():
    """It is the last test of the file, so a run of a part of the file has nothing to say."""
    assert set(REMEDIES) == CARRIED_OUT
