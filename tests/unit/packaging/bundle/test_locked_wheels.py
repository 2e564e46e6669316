"""Locked wheels: which tags a Python on a machine takes, which file is chosen, and that hashes and markers decide."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile

import pytest
from checkout import CHECKOUT, locked_wheels, wheels
from choices import ARCHITECTURES, NODE_GLIBC, NODE_PYTHONS, Choice
from packaging.version import Version

LOCK = CHECKOUT / "requirements" / "node.txt"
BULLSEYE = locked_wheels.Target((3, 9), "x86_64", (2, 31))
TRIXIE_ARM = locked_wheels.Target((3, 13), "aarch64", (2, 41))


def put(directory, name, content="x"):
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(content)
    return hashlib.sha256(content.encode()).hexdigest()


def requirement(name, version, *hashes):
    return locked_wheels.Requirement(name, Version(version), frozenset(hashes))


def test_platforms_follow_the_nodes_glibc():
    platforms = BULLSEYE.platforms()
    assert platforms[0] == "manylinux_2_31_x86_64"
    assert "manylinux_2_32_x86_64" not in platforms
    # Each old profile beside its number.
    assert platforms.index("manylinux2014_x86_64") == platforms.index("manylinux_2_17_x86_64") + 1
    assert {"manylinux2010_x86_64", "manylinux1_x86_64"} <= set(platforms)
    assert TRIXIE_ARM.platforms()[0] == "manylinux_2_41_aarch64"


@pytest.mark.parametrize(
    ("target", "names", "chosen"),
    [
        (BULLSEYE, ["a-1-cp39-cp39-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "a-1-py3-none-any.whl"], 0),
        (BULLSEYE, ["a-1-cp39-cp39-manylinux_2_34_x86_64.whl", "a-1-py3-none-any.whl"], 1),
        (BULLSEYE, ["a-1-cp310-cp310-manylinux2014_x86_64.whl", "a-1-cp39-abi3-manylinux2014_x86_64.whl"], 1),
        (TRIXIE_ARM, ["a-1-cp39-abi3-manylinux2014_x86_64.whl", "a-1-cp39-abi3-manylinux2014_aarch64.whl"], 1),
        (TRIXIE_ARM, ["a-1-cp313-cp313-musllinux_1_2_aarch64.whl", "a-1-cp313-cp313t-manylinux2014_aarch64.whl"], None),
    ],
)
def test_the_best_wheel_that_fits(tmp_path, target, names, chosen):
    hashes = [put(tmp_path, name, name) for name in names]
    found, missing = locked_wheels.select(tmp_path, [requirement("a", "1", *hashes)], target)
    assert [wheel.path.name for wheel in found] == ([names[chosen]] if chosen is not None else [])
    assert bool(missing) == (chosen is None)


def test_a_wheel_with_another_hash_is_none(tmp_path):
    put(tmp_path, "a-1-py3-none-any.whl", "tampered with")
    wanted = requirement("a", "1", hashlib.sha256(b"as released").hexdigest())
    assert locked_wheels.select(tmp_path, [wanted], BULLSEYE) == ([], [wanted])


def test_another_version_is_none(tmp_path):
    digest = put(tmp_path, "a-2-py3-none-any.whl")
    assert locked_wheels.select(tmp_path, [requirement("a", "1", digest)], BULLSEYE)[0] == []


def test_the_lock_is_read_and_covers_what_the_plugin_needs():
    """Provisioning, complaint 5: nothing is unpinned."""
    locked = locked_wheels.read_lock(LOCK)
    assert {"grpcio", "protobuf", "pyyaml"} <= {entry.name for entry in locked}
    assert all(entry.hashes for entry in locked)


HASH = f"--hash=sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("grpcio==1", "lock.txt: not a pinned requirement with hashes: grpcio==1"),
        (f"grpcio>=1 {HASH}", "lock.txt: not a pinned requirement with hashes: grpcio>=1"),
        (
            f"grpcio==1 ; nonsense == 1 {HASH}",
            "lock.txt: grpcio: not an environment marker: nonsense",
        ),
    ],
)
def test_a_lock_that_does_not_pin_is_refused(tmp_path, line, says):
    (tmp_path / "lock.txt").write_text(f"{line}\n")
    with pytest.raises(locked_wheels.WheelsError, match=says):
        locked_wheels.read_lock(tmp_path / "lock.txt")


def write_lock(directory, **lines):
    """A lock as uv writes it; lines: the hash of each name's version 1, and perhaps a marker."""
    text = "".join(
        f"{name}==1{f' ; {marker[0]}' if marker else ''} \\\n    --hash=sha256:{digest}\n    # via somebody\n"
        for name, (digest, *marker) in lines.items()
    )
    (directory / "lock.txt").write_text(text)
    return directory / "lock.txt"


def test_markers_are_those_of_the_target(tmp_path):
    lock = write_lock(
        tmp_path,
        always=("0" * 64,),
        old=("1" * 64, "python_version < '3.11'"),
        arm=("2" * 64, "platform_machine == 'aarch64' and sys_platform == 'linux'"),
        jit=("3" * 64, "implementation_name != 'PyPy' and platform_python_implementation != 'CPython'"),
        windows=("4" * 64, "os_name == 'nt' or platform_system == 'Windows'"),
    )
    for target, lacks in ((BULLSEYE, "always 1, old 1"), (TRIXIE_ARM, "always 1, arm 1")):
        with pytest.raises(locked_wheels.WheelsError, match=f"has no wheels for {target.name} .* lock.txt: {lacks}$"):
            locked_wheels.find(lock, target, tmp_path, fetch=False)


def release(directory, name, python):
    """A wheel that pip takes for one; its hash."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}-1-{python}-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        wheel.writestr(f"{name}-1.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {python}-none-any\n")
        wheel.writestr(f"{name}-1.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The folder that pip is configured to take releases from."""
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path / "index")), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{name}", value)
    return tmp_path / "index"


def test_what_lacks_is_fetched_for_the_target_as_pip_is_configured(tmp_path, index, monkeypatch):
    there, lacks = release(tmp_path / "store", "there", "py3"), release(index, "lacks", "py39")
    old = f"python_version < '{sys.version_info[0]}.{sys.version_info[1]}'"
    lock = write_lock(tmp_path, there=(there,), lacks=(lacks, old))
    # pip's own Python is newer than the target's: the marker must not be asked of it.
    found = locked_wheels.find(lock, BULLSEYE, tmp_path / "store")
    assert {wheel.path.name: wheel.sha256 for wheel in found} == {
        "there-1-py3-none-any.whl": there,
        "lacks-1-py39-none-any.whl": lacks,
    }
    monkeypatch.setattr(wheels, "run", None)
    assert locked_wheels.find(lock, BULLSEYE, tmp_path / "store") == found


def test_a_release_with_another_hash_is_not_fetched(tmp_path, index):
    release(index, "lacks", "py3")
    with pytest.raises(locked_wheels.WheelsError, match="THESE PACKAGES DO NOT MATCH THE HASHES"):
        locked_wheels.find(write_lock(tmp_path, lacks=("0" * 64,)), BULLSEYE, tmp_path / "store")
    assert not list((tmp_path / "store").iterdir())


@pytest.mark.parametrize(
    "target", Choice(NODE_PYTHONS, ARCHITECTURES, NODE_GLIBC).targets(), ids=lambda each: each.name
)
def test_the_table_of_targets_has_the_locked_wheels(target):
    """A wheel with another version or hash than in node.txt: run `make lock`, which generates the table."""
    table = wheels.table()
    digests = {name: digest for each in table.values() for name, digest in each["wheels"].items()}
    needed = locked_wheels.needed(LOCK, target)
    chosen, missing = locked_wheels.choose(digests, digests.__getitem__, needed, target)
    assert missing == []
    assert table[target.name] == {"glibc": list(NODE_GLIBC), "wheels": chosen}


def test_the_table_has_no_other_targets():
    assert set(wheels.table()) == {each.name for each in Choice(NODE_PYTHONS, ARCHITECTURES, NODE_GLIBC).targets()}
