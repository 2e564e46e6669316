"""Which archive of code a module loads on a node, and that it imports exactly the bytes that it has checked."""

from __future__ import annotations

import io
import os
import sys
import zipfile

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import node_code
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import sha256


def packed(text):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("code_of_a_test.py", text)
    return content.getvalue()


GOOD, OTHER = packed("said = 'good'\n"), packed("said = 'other'\n")
DIGEST = sha256(GOOD)
#: Python remembers the archive of each path, so no later test may get the same file descriptor.
OPEN = []


@pytest.fixture(autouse=True)
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(node_code, "path_of", lambda digest: str(tmp_path / "kept" / f"{digest}.zip"))
    monkeypatch.setattr(node_code, "_loaded", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "kept").mkdir()
    yield
    OPEN.extend(node_code._loaded)
    sys.modules.pop("code_of_a_test", None)


def test_the_place_is_below_the_ledgers_directory(monkeypatch):
    monkeypatch.undo()
    assert node_code.path_of("ab") == "/var/lib/node-devices/code/ab.zip"
    assert node_code.path_of("ab", "/x") == "/x/code/ab.zip"


def imported():
    import code_of_a_test

    return code_of_a_test.said


def kept(tmp_path, content):
    (tmp_path / "kept" / f"{DIGEST}.zip").write_bytes(content)


def test_the_kept_archive_needs_no_copy(tmp_path):
    kept(tmp_path, GOOD)
    assert node_code.loaded() is None
    node_code.load({"sha256": DIGEST, "path": None})
    assert imported() == "good"
    assert node_code.loaded() == (DIGEST, GOOD)


def test_a_damaged_kept_archive_does_not_count(tmp_path):
    kept(tmp_path, OTHER)
    assert not node_code.load({"sha256": DIGEST})
    (tmp_path / "copy").write_bytes(GOOD)
    node_code.load({"sha256": DIGEST, "path": str(tmp_path / "copy")})
    assert imported() == "good"


def test_a_copy_that_is_replaced_after_the_check_is_not_imported(tmp_path):
    copy = tmp_path / "copy"
    copy.write_bytes(GOOD)
    node_code.load({"sha256": DIGEST, "path": str(copy)})
    copy.write_bytes(OTHER)
    assert imported() == "good"


@pytest.mark.parametrize("kind", ["other", "link", "pipe", "directory", "missing"])
def test_what_is_no_copy(tmp_path, kind):
    copy = tmp_path / "copy"
    if kind == "other":
        copy.write_bytes(OTHER)
    elif kind == "link":
        (tmp_path / "good").write_bytes(GOOD)
        copy.symlink_to(tmp_path / "good")
    elif kind == "pipe":
        os.mkfifo(copy)
    elif kind == "directory":
        copy.mkdir()
    before = list(sys.path)
    assert not node_code.load({"sha256": DIGEST, "path": str(copy)})
    assert sys.path == before


def test_the_code_comes_before_installed_packages(tmp_path, monkeypatch):
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "code_of_a_test.py").write_text("said = 'installed'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    kept(tmp_path, GOOD)
    node_code.load({"sha256": DIGEST})
    assert imported() == "good"


class Module:
    """The module that Ansible gives. Its exits raise, as Ansible's do."""

    def __init__(self, **code):
        self.params = {"code": {"sha256": DIGEST, "path": None, **code}}

    def exit_json(self, **result):
        raise SystemExit(result)

    fail_json = exit_json


def test_a_module_asks_for_missing_code_once(tmp_path):
    with pytest.raises(SystemExit) as asked:
        node_code.load_for(Module())
    assert asked.value.code == {"changed": False, "code_missing": True}
    (tmp_path / "copy").write_bytes(OTHER)
    with pytest.raises(SystemExit) as refused:
        node_code.load_for(Module(path=str(tmp_path / "copy")))
    assert refused.value.code == {
        "msg": "the plugin's code arrived with another SHA-256 than the one that was sent, so it was not loaded: run "
        "again"
    }
    (tmp_path / "copy").write_bytes(GOOD)
    node_code.load_for(Module(path=str(tmp_path / "copy")))
    assert imported() == "good"


@pytest.mark.parametrize("device", ["/dev/full", None])
def test_a_full_disk_is_named(tmp_path, monkeypatch, device):
    def opened():
        if device:
            return open(device, "wb")
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    kept(tmp_path, GOOD)
    monkeypatch.setattr("tempfile.TemporaryFile", opened)
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    before = list(sys.path)
    with pytest.raises(SystemExit) as refused:
        node_code.load_for(Module())
    why = "/tmp: No space left on device" if device else "[Errno 2] No usable temporary directory found in ['/tmp']"
    assert refused.value.code == {"msg": f"the plugin's code cannot be loaded: {why}"}
    assert (sys.path, node_code.loaded()) == (before, None)


def test_a_python_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 20))
    with pytest.raises(SystemExit) as refused:
        node_code.load_for(Module())
    assert refused.value.code == {
        "msg": "the node's Python is 3.8, but 3.9 or later is required: set ansible_python_interpreter"
    }


def test_nothing_is_left_and_no_other_program_gets_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "kept"))
    kept(tmp_path, GOOD)
    node_code.load({"sha256": DIGEST})
    assert os.listdir(tmp_path / "kept") == [f"{DIGEST}.zip"]
    assert not os.get_inheritable(int(sys.path[0].rpartition("/")[2]))
