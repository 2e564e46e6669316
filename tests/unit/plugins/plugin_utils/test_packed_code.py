"""What is in the archive of code that modules import on a node."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import node_code
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.wheels import WheelsError


@pytest.fixture(autouse=True)
def afresh():
    node_code.archive.cache_clear()
    yield
    node_code.archive.cache_clear()


def members(content):
    return zipfile.ZipFile(io.BytesIO(content)).namelist()


def test_equal_sources_give_equal_bytes_and_the_hash_is_theirs():
    one = node_code.archive()
    node_code.archive.cache_clear()
    assert node_code.archive() == one
    assert node_code.sha256() == hashlib.sha256(one).hexdigest()


def test_the_archive_has_sources_alone_and_no_wire():
    names = members(node_code.archive())
    assert {name.partition("/")[0] for name in names} == {
        "__main__.py",
        "node_device_plugin",
        "yaml",
        "tomlkit",
        "tomli",
    }
    assert all(name.endswith(".py") for name in names)
    assert not [name for name in names if name.startswith("node_device_plugin/wire/")]
    assert "node_device_plugin/support/bounded_reads.py" in names
    with_wire = members(node_code.archive(with_wire=True))
    assert set(names) < set(with_wire)
    assert all(name.startswith("node_device_plugin/wire/") for name in set(with_wire) - set(names))


def test_the_archive_of_a_reproducible_installation(tmp_path, monkeypatch):
    """Its files may be of 1970, which no zip file can express."""
    source = tmp_path / "a.py"
    source.write_text("")
    monkeypatch.setattr(node_code, "_sources", lambda: [("a.py", source)])
    packed = []
    for seconds in (0, 1_700_000_000):
        os.utime(source, (seconds, seconds))
        node_code.archive.cache_clear()
        packed.append(node_code.archive())
    assert members(packed[0]) == ["__main__.py", "a.py"]
    assert packed[0] == packed[1]


def test_one_task_packs_the_archive_for_the_tasks_of_all_hosts(monkeypatch):
    digest, archive = node_code.sha256(), node_code.archive
    # Each task is a process of its own, which has packed nothing.
    monkeypatch.setattr(node_code, "archive", lambda: pytest.fail("it is packed again"))
    assert node_code.sha256() == digest == node_code.sha256()
    monkeypatch.setattr(node_code, "archive", archive)


def test_the_archive_runs_where_nothing_is_installed(tmp_path):
    (tmp_path / "code.zip").write_bytes(node_code.archive())
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from node_device_plugin.support import documents as d; "
        "import tomli, tomlkit; print(d.read_yaml(b'a: [1]'), tomli.loads('a = 1'), tomlkit.dumps({'a': 1}))"
    )
    command = [sys.executable, "-I", "-S", "-c", code, tmp_path / "code.zip"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{'a': [1]} {'a': 1} a = 1\n\n", "")


def test_the_parser_for_older_pythons_accepts_what_that_of_later_ones_accepts(tmp_path):
    (tmp_path / "code.zip").write_bytes(node_code.archive())
    # TOML 1.1 allows a line break in an inline table.
    code = "import sys; sys.path.insert(0, sys.argv[1]); import tomli; tomli.loads('a = {\\n}')"
    command = [sys.executable, "-I", "-S", "-c", code, tmp_path / "code.zip"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "TOMLDecodeError" in done.stderr


def test_a_controller_without_a_package(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tomli" else find(name))
    with pytest.raises(WheelsError) as refused:
        node_code.archive()
    assert str(refused.value) == (
        f"the controller's Python ({sys.executable}) has no tomli: install requirements/controller.txt into Ansible's "
        "Python environment"
    )
