"""What a node's environment is made of: the plugin's own wheel and the locked ones, and where they come from."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import pathlib
import tarfile
import tomllib
import zipfile

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels

BULLSEYE, TRIXIE_ARM = "cp39-x86_64", "cp313-aarch64"


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Sets the wheels of a target: file names with their content."""

    def set_wheels(target, **contents):
        wanted = {f"{name}-1-py3-none-any.whl": digest(content) for name, content in contents.items()}
        (tmp_path / "table.json").write_text(json.dumps({target: {"glibc": [2, 17], "wheels": wanted}}))

    monkeypatch.setattr(wheels, "TABLE", tmp_path / "table.json")
    return set_wheels


def digest(content):
    return hashlib.sha256(content).hexdigest()


def test_a_wheelhouse_that_lacks_a_wheel_names_it(tmp_path):
    with pytest.raises(wheels.WheelsError, match=r"has no wheels for cp39-x86_64 with the hashes in .*: grpcio-1"):
        wheels.gather(BULLSEYE, tmp_path / "cache", tmp_path / "wheelhouse")


def test_a_controller_from_a_bundle_has_its_wheels_in_its_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "BUNDLED", tmp_path / "share")
    (tmp_path / "share").mkdir()
    with pytest.raises(wheels.WheelsError, match=f"{tmp_path}/share has no wheels for cp39-x86_64"):
        wheels.gather(BULLSEYE, tmp_path / "cache", None)
    # What is asked for comes first.
    with pytest.raises(wheels.WheelsError, match=f"{tmp_path}/wheelhouse has no wheels for cp39-x86_64"):
        wheels.gather(BULLSEYE, tmp_path / "cache", tmp_path / "wheelhouse")


def test_the_wheels_of_a_wheelhouse_have_the_hashes_of_the_table(tmp_path, table):
    table(BULLSEYE, good=b"good", changed=b"as released")
    house = tmp_path / "wheelhouse"
    house.mkdir()
    (house / "good-1-py3-none-any.whl").write_bytes(b"good")
    (house / "changed-1-py3-none-any.whl").write_bytes(b"tampered with")
    with pytest.raises(wheels.WheelsError) as refused:
        wheels.find(BULLSEYE, house, fetch=False)
    assert str(refused.value) == (
        f"{house} has no wheels for cp39-x86_64 with the hashes in table.json: changed-1-py3-none-any.whl"
    )
    (house / "changed-1-py3-none-any.whl").write_bytes(b"as released")
    assert [wheel.path.name for wheel in wheels.find(BULLSEYE, house, fetch=False)] == [
        "good-1-py3-none-any.whl",
        "changed-1-py3-none-any.whl",
    ]


def release(directory, name):
    """A wheel that pip takes for one; its content."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        wheel.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.dist-info/RECORD", "")
    return path.read_bytes()


def test_pip_downloads_what_the_cache_lacks(tmp_path, table, monkeypatch):
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path / "index")), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{name}", value)
    there, lacks = release(tmp_path / "store", "there"), release(tmp_path / "index", "lacks")
    table(BULLSEYE, there=there, lacks=lacks)
    assert [wheel.sha256 for wheel in wheels.find(BULLSEYE, tmp_path / "store")] == [digest(there), digest(lacks)]
    assert (tmp_path / "store" / "lacks-1-py3-none-any.whl").read_bytes() == lacks
    monkeypatch.setattr(wheels, "run", None)
    assert len(wheels.find(BULLSEYE, tmp_path / "store")) == 2


def test_pip_is_asked_for_the_targets_python_and_its_wheels_platforms(tmp_path, monkeypatch):
    asked = []

    def run(command, cwd, missing):
        wanted = pathlib.Path(command[command.index("--requirement") + 1]).read_text().splitlines()
        asked.append((command, wanted))

    monkeypatch.setattr(wheels, "run", run)
    with pytest.raises(wheels.WheelsError, match=f"{tmp_path}/store has no wheels for cp313-aarch64"):
        wheels.find(TRIXIE_ARM, tmp_path / "store")
    ((command, wanted),) = asked
    options = list(itertools.pairwise(command))
    assert ("--python-version", "3.13") in options
    assert [value for option, value in options if option == "--abi"] == ["cp313", "abi3", "none"]
    platforms = [value for option, value in options if option == "--platform"]
    assert "manylinux2014_aarch64" in platforms
    assert all(platform.endswith("_aarch64") for platform in platforms)
    table = wheels.table()[TRIXIE_ARM]["wheels"]
    assert {line.partition("--hash=sha256:")[2] for line in wanted} == set(table.values())
    assert all("==" in line for line in wanted)


def test_the_plugins_wheel_is_the_same_each_time(tmp_path):
    built = [wheels.built(tmp_path / name) for name in ("one", "two")]
    assert built[0].sha256 == built[1].sha256
    assert built[0].path.name == f"node_device_plugin-{wheels.version()}-py3-none-any.whl"


def test_each_file_that_a_wheel_is_built_from_changes_the_wheels_place_in_the_cache(tmp_path, monkeypatch):
    """A release once had the README of an earlier commit."""
    project = tomllib.loads((wheels.COLLECTION / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = ["pyproject.toml", project["readme"], *project["license-files"], "plugin/node_device_plugin/a.py"]
    monkeypatch.setattr(wheels, "COLLECTION", tmp_path)
    (tmp_path / "plugin/node_device_plugin").mkdir(parents=True)
    for name in names:
        (tmp_path / name).write_text(name)
    digests = [wheels._source_digest()]
    for name in names:
        (tmp_path / name).write_text("changed")
        digests.append(wheels._source_digest())
    assert len(set(digests)) == len(names) + 1


def test_the_environments_name_hangs_on_the_target_its_wheels_and_the_sources(table, monkeypatch):
    of_targets = wheels.targets
    names = set()
    table(BULLSEYE, a=b"1")
    names.add(of_targets()[BULLSEYE]["environment"])
    table(TRIXIE_ARM, a=b"1")
    names.add(of_targets()[TRIXIE_ARM]["environment"])
    table(BULLSEYE, a=b"2")
    names.add(of_targets()[BULLSEYE]["environment"])
    monkeypatch.setattr(wheels, "_source_digest", lambda: "other")
    names.add(of_targets()[BULLSEYE]["environment"])
    assert len(names) == 4
    assert all(name.startswith(f"{wheels.version()}-") for name in names)
    assert of_targets()[BULLSEYE]["glibc"] == [2, 17]


def test_one_archive(tmp_path):
    (tmp_path / "a-1-py3-none-any.whl").write_text("x")
    archive = wheels.packed([wheels.Wheel(tmp_path / "a-1-py3-none-any.whl", "")])
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getnames() == ["a-1-py3-none-any.whl"]


def test_the_archive_does_not_have_the_controllers_user(tmp_path, monkeypatch):
    """A directory service gives users ids for which the archive's format has no room."""
    gettarinfo = tarfile.TarFile.gettarinfo

    def of_a_large_id(self, name=None, arcname=None, fileobj=None):
        member = gettarinfo(self, name, arcname, fileobj)
        member.uid = member.gid = 1_829_000_500
        return member

    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", of_a_large_id)
    (tmp_path / "a-1-py3-none-any.whl").write_text("x")
    archive = wheels.packed([wheels.Wheel(tmp_path / "a-1-py3-none-any.whl", "")])
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        (member,) = tar.getmembers()
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert tar.extractfile(member).read() == b"x"


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_cache_that_others_can_write_is_refused(tmp_path, mode):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with (
        pytest.raises(wheels.WheelsError, match=f"{tmp_path}/cache: other users can write to it"),
        wheels.locked(tmp_path / "cache"),
    ):
        pass


def test_a_cache_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(wheels.WheelsError, match="belongs to uid"), wheels.locked(tmp_path):
        pass


def test_a_new_cache_is_its_users_alone(tmp_path):
    with wheels.locked(tmp_path / "cache"):
        assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_cache_that_another_worker_uses_is_waited_for_until_the_limit(tmp_path, monkeypatch):
    """Whoever may open the lock's file may lock it; an earlier release let everybody open it."""
    monkeypatch.setattr(wheels, "_LONGEST_WAIT", 0)
    (tmp_path / ".lock").touch(mode=0o644)
    with wheels.locked(tmp_path):
        assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600
        with (
            pytest.raises(wheels.WheelsError, match=f"{tmp_path}/.lock: it is locked by process "),
            wheels.locked(tmp_path),
        ):
            pass


def test_a_cache_in_use_on_a_controller_with_macos(tmp_path, monkeypatch):
    """Only Linux has O_PATH and shows who holds a lock."""
    monkeypatch.delattr("os.O_PATH")
    monkeypatch.setattr(wheels, "_LONGEST_WAIT", 0)
    with (
        wheels.locked(tmp_path),
        pytest.raises(wheels.WheelsError) as error,
        wheels.locked(tmp_path),
    ):
        pass
    assert str(error.value) == (
        f"{tmp_path}/.lock: it is locked by a process that /proc does not show: end what holds the lock, e.g. reboot "
        "the machine"
    )


def test_a_built_wheel_that_changed_is_refused(tmp_path):
    built = wheels.built(tmp_path)
    assert wheels.built(tmp_path) == built
    with built.path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(wheels.WheelsError, match=f"{built.path.name} changed since it was built"):
        wheels.built(tmp_path)


def test_a_wheel_without_a_recorded_hash_is_built_again(tmp_path):
    """As caches have it that an earlier version made."""
    built = wheels.built(tmp_path)
    for path in built.path.parent.glob("*.sha256"):
        path.unlink()
    built.path.write_bytes(b"x")
    assert wheels.built(tmp_path) == built
