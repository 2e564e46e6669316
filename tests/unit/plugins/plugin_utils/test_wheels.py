"""What a node's environment is made of: the plugin's own wheel and the locked ones, and where they come from."""

from __future__ import annotations

import tarfile

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.action.node_tools import target_of
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels

BULLSEYE = wheels.Target((3, 9), "x86_64", (2, 31))
TRIXIE_ARM = wheels.Target((3, 13), "aarch64", (2, 41))


def test_a_wheelhouse_that_lacks_a_wheel_names_it(tmp_path):
    with pytest.raises(wheels.WheelsError, match=r"has no wheels for cp39-x86_64 \(glibc 2.31\).*grpcio 1"):
        wheels.gather(BULLSEYE, tmp_path / "cache", tmp_path / "wheelhouse")


def test_a_controller_from_a_bundle_has_its_wheels_in_its_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "BUNDLED", tmp_path / "share")
    (tmp_path / "share").mkdir()
    with pytest.raises(wheels.WheelsError, match=f"{tmp_path}/share has no wheels for cp39-x86_64"):
        wheels.gather(BULLSEYE, tmp_path / "cache", None)
    # What is asked for comes first.
    with pytest.raises(wheels.WheelsError, match=f"{tmp_path}/wheelhouse has no wheels for cp39-x86_64"):
        wheels.gather(BULLSEYE, tmp_path / "cache", tmp_path / "wheelhouse")


def test_the_plugins_wheel_is_the_same_each_time(tmp_path):
    built = [wheels.built(tmp_path / name) for name in ("one", "two")]
    assert built[0].sha256 == built[1].sha256
    assert built[0].path.name == f"node_device_plugin-{wheels.version()}-py3-none-any.whl"


def test_the_environments_name_hangs_on_the_nodes_kind():
    names = {wheels.environment_name(target) for target in (BULLSEYE, TRIXIE_ARM)}
    assert len(names) == 2
    assert all(name.startswith(f"{wheels.version()}-") for name in names)
    # A newer glibc takes the same wheels and more: no reason for another environment.
    assert wheels.environment_name(BULLSEYE._replace(glibc=(2, 36))) in names


def test_one_archive(tmp_path):
    (tmp_path / "a-1-py3-none-any.whl").write_text("x")
    archive = wheels.pack("0.1.0-x", [wheels.Wheel(tmp_path / "a-1-py3-none-any.whl", "")], tmp_path / "cache")
    with tarfile.open(archive) as tar:
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
    archive = wheels.pack("0.1.0-x", [wheels.Wheel(tmp_path / "a-1-py3-none-any.whl", "")], tmp_path / "cache")
    with tarfile.open(archive) as tar:
        (member,) = tar.getmembers()
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert tar.extractfile(member).read() == b"x"


def test_the_target_comes_from_the_node():
    node = {"libc": "glibc 2.41", "machine": "aarch64", "python": {"version": [3, 13, 5]}}
    assert target_of(node) == TRIXIE_ARM
    with pytest.raises(wheels.WheelsError, match="not glibc"):
        target_of({**node, "libc": ""})


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
