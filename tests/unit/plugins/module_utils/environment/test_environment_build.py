"""An environment laid out from wheels: what does not load on the node never gets its name."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import (
    COMMAND,
    SCRIPT,
    VersionError,
    build,
    edited,
    is_complete,
    unpack_wheel,
)

NAME = "0.1.0-aaaaaaaaaaaa"
PROGRAM = "node_device_plugin/cli/main.py"


def wheel(more=(), **modules: str) -> bytes:
    """A wheel of these modules. The command is the function main of module plugin, which gets the plugin's place."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for module, text in modules.items():
            file.writestr(PROGRAM if module == "plugin" else f"{module}.py", text)
        for name, text in dict(more).items():
            file.writestr(name, text)
    return packed.getvalue()


@pytest.fixture
def lay_out(tmp_path):
    """Build an environment of one wheel; gives its folder."""

    def lay_out(**modules):
        content = wheel(**modules)
        archive = tmp_path / "wheels.tar"
        with tarfile.open(archive, "w") as file:
            member = tarfile.TarInfo("p.whl")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
        directory = tmp_path / "versions" / NAME
        directory.parent.mkdir(exist_ok=True)
        build(str(directory), NAME, str(archive), {"p.whl": hashlib.sha256(content).hexdigest()})
        return directory

    return lay_out


def test_it_runs(lay_out):
    directory = lay_out(plugin="def main():\n    print('here')\n", grpc="")
    assert is_complete(str(directory), NAME)
    assert subprocess.run([directory / "bin" / COMMAND], capture_output=True, check=True).stdout == b"here\n"


@pytest.mark.parametrize("umask", [0o000, 0o027, 0o077])
def test_all_users_may_read_it_and_only_root_may_write_to_it(lay_out, tmp_path, umask):
    """Whatever umask the connection or sudo has."""
    (tmp_path / "versions").mkdir()
    was = os.umask(umask)
    try:
        directory = lay_out(plugin="def main():\n    print('here')\n", grpc="")
        assert os.umask(umask) == umask
    finally:
        os.umask(was)
    modes = {path: path.stat().st_mode & 0o777 for path in [directory, *directory.rglob("*")] if not path.is_symlink()}
    assert set(modes.values()) == {0o755, 0o644}
    assert {path.name for path, mode in modes.items() if mode == 0o755 and not path.is_dir()} == {COMMAND}


def test_it_is_durable_before_it_has_its_name_and_waits_for_no_other_file_system(lay_out, tmp_path, monkeypatch):
    """os.sync waits for an NFS server that hangs."""
    named = []

    class Library:
        def __init__(self, *arguments, **keywords):
            pass

        def syncfs(self, descriptor):
            partial = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            named.append((is_complete(str(partial), NAME), (tmp_path / "versions" / NAME).exists()))
            return 0

    monkeypatch.setattr(os, "sync", lambda: pytest.fail("it waits for every file system"))
    monkeypatch.setattr(ctypes, "CDLL", Library)
    lay_out(plugin="def main(): pass\n", grpc="")
    assert named == [(True, False)]


EDITS = {
    "module changed": (f"lib/python{{}}/site-packages/{PROGRAM}", lambda path: path.write_text("def main(): pass\n")),
    "module removed": ("lib/python{}/site-packages/grpc.py", lambda path: path.unlink()),
    "for all to write": (f"lib/python{{}}/site-packages/{PROGRAM}", lambda path: path.chmod(0o666)),
    "folder for all to write": ("lib/python{}/site-packages", lambda path: path.chmod(0o777)),
    "script changed": (f"bin/{COMMAND}", lambda path: path.write_text("#!/bin/true\n")),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_somebody_edited_is_not_whole(lay_out, edit):
    directory = lay_out(plugin="def main():\n    print('here')\n", grpc="")
    assert (is_complete(str(directory), NAME), edited(str(directory))) == (True, [])
    where, change = EDITS[edit]
    path = where.format("%d.%d" % sys.version_info[:2])
    change(directory / path)
    assert (is_complete(str(directory), NAME), edited(str(directory))) == (False, [path])
    assert is_complete(str(lay_out(plugin="def main():\n    print('here')\n", grpc="")), NAME)


def test_what_lies_beside_its_files_is_no_edit(lay_out):
    directory = lay_out(plugin="def main():\n    print('here')\n", grpc="")
    (directory / "lib" / "note").write_text("of somebody")
    assert is_complete(str(directory), NAME)


def test_what_does_not_load_is_refused_and_the_one_before_it_stays(lay_out, tmp_path):
    before = lay_out(plugin="def main():\n    print('here')\n", grpc="")
    missing = "libstdc++.so.6: cannot open shared object file: No such file or directory"
    with pytest.raises(VersionError) as refused:
        lay_out(plugin="def main(): pass", grpc=f"raise ImportError({missing!r})")
    assert missing in str(refused.value)
    assert "Debian: libstdc++6" in str(refused.value)
    assert subprocess.run([before / "bin" / COMMAND], capture_output=True, check=True).stdout == b"here\n"


@pytest.mark.parametrize("name", ["../p.py", "a/../../p.py", "/p.py", "a\\p.py"])
def test_a_wheel_with_a_file_for_another_place_is_refused(lay_out, name):
    with pytest.raises(VersionError, match=r"p\.whl contains a link or a file outside site-packages"):
        lay_out(plugin="", grpc="", more={name: ""})


def test_a_wheel_with_a_link_is_refused(lay_out):
    link = zipfile.ZipInfo("link.py")
    link.external_attr = 0o120777 << 16
    with pytest.raises(VersionError, match=r"p\.whl contains a link or a file outside site-packages: link\.py"):
        lay_out(plugin="", grpc="", more={link: "/etc/passwd"})


def test_the_bytes_that_were_hashed_are_those_that_are_unpacked(tmp_path):
    """Another process writes the archive after it was hashed."""
    good, evil = wheel(plugin="good"), wheel(plugin="evil")

    class Changing(io.BytesIO):
        def read(self, *size):
            content = super().read(*size)
            if not size:
                self.getbuffer()[:] = evil
            return content

    class Archive:
        def extractfile(self, _member):
            return Changing(good)

    unpack_wheel(Archive(), "p.whl", hashlib.sha256(good).hexdigest(), str(tmp_path))
    assert (tmp_path / PROGRAM).read_text() == "good"


def test_the_command_calls_the_function_of_the_package():
    project = (Path(__file__).parents[5] / "pyproject.toml").read_text()
    assert f'\n{COMMAND} = "node_device_plugin.cli.main:main"\n' in project
    assert "\nfrom node_device_plugin.cli.main import main\n" in SCRIPT
