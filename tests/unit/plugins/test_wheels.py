"""Wheels for a node: which tags it takes, which file is chosen, and that hashes decide."""

from __future__ import annotations

import hashlib
import tarfile

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.action.node_tools import target_of
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels
from packaging.version import Version

BULLSEYE = wheels.Target((3, 9), "x86_64", (2, 31))
TRIXIE_ARM = wheels.Target((3, 13), "aarch64", (2, 41))


def put(folder, name, content="x"):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(content)
    return hashlib.sha256(content.encode()).hexdigest()


def requirement(name, version, *hashes):
    return wheels.Requirement(name, Version(version), frozenset(hashes))


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
    found, lacking = wheels.select(tmp_path, [requirement("a", "1", *hashes)], target)
    assert [wheel.path.name for wheel in found] == ([names[chosen]] if chosen is not None else [])
    assert bool(lacking) == (chosen is None)


def test_a_wheel_with_another_hash_is_none(tmp_path):
    put(tmp_path, "a-1-py3-none-any.whl", "tampered with")
    wanted = requirement("a", "1", hashlib.sha256(b"as released").hexdigest())
    assert wheels.select(tmp_path, [wanted], BULLSEYE) == ([], [wanted])


def test_another_version_is_none(tmp_path):
    digest = put(tmp_path, "a-2-py3-none-any.whl")
    assert wheels.select(tmp_path, [requirement("a", "1", digest)], BULLSEYE)[0] == []


def test_the_lock_is_read_and_covers_what_the_plugin_needs():
    """Provisioning, complaint 5: nothing is unpinned."""
    locked = wheels.read_lock(wheels.LOCK.read_text())
    assert {"grpcio", "protobuf", "pyyaml"} <= {entry.name for entry in locked}
    assert all(entry.hashes for entry in locked)


def test_a_lock_without_hashes_is_refused():
    with pytest.raises(wheels.WheelsError, match="not a pinned requirement with hashes: grpcio==1"):
        wheels.read_lock("grpcio==1\n")


def test_a_wheelhouse_that_lacks_a_wheel_names_it(tmp_path):
    with pytest.raises(wheels.WheelsError, match=r"lacks wheels for cp39-x86_64 \(glibc 2.31\).*grpcio 1"):
        wheels.gather(BULLSEYE, tmp_path / "cache", tmp_path / "wheelhouse")


def test_the_plugins_wheel_is_the_same_each_time(tmp_path):
    built = [wheels._built(tmp_path / name) for name in ("one", "two")]
    assert built[0].sha256 == built[1].sha256
    assert built[0].path.name == f"node_device_plugin-{wheels.version()}-py3-none-any.whl"


def test_the_environments_name_hangs_on_the_nodes_kind():
    names = {wheels.environment_name(target) for target in (BULLSEYE, TRIXIE_ARM)}
    assert len(names) == 2
    assert all(name.startswith(f"{wheels.version()}-") for name in names)
    # A newer glibc takes the same wheels and more: no reason for another environment.
    assert wheels.environment_name(BULLSEYE._replace(glibc=(2, 36))) in names


def test_one_archive(tmp_path):
    put(tmp_path, "a-1-py3-none-any.whl")
    archive = wheels.pack("0.1.0-x", [wheels.Wheel(tmp_path / "a-1-py3-none-any.whl", "")], tmp_path / "cache")
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["a-1-py3-none-any.whl"]


def test_the_target_comes_from_the_node():
    node = {"libc": "glibc 2.41", "machine": "aarch64", "python": {"version": [3, 13, 5]}}
    assert target_of(node) == TRIXIE_ARM
    with pytest.raises(wheels.WheelsError, match="not glibc"):
        target_of({**node, "libc": ""})
