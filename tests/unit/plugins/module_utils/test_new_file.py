"""A file under a temporary name: whole and private, or not there."""

from __future__ import annotations

import os
import stat

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support.new_file import new_file


def test_it_is_private_until_its_writer_says_otherwise(tmp_path):
    path = tmp_path / "new"
    with new_file(str(path)) as file:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        file.write(b"x")
    assert path.read_bytes() == b"x"


def test_an_error_leaves_nothing_and_is_raised(tmp_path):
    path = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt), new_file(str(path)):
        raise KeyboardInterrupt
    assert not path.exists()


def test_an_error_after_the_rename_is_raised_as_it_is(tmp_path):
    path = tmp_path / "new"
    with pytest.raises(FileNotFoundError, match="none"), new_file(str(path)):
        path.rename(tmp_path / "there").with_name("none").stat()
    assert os.listdir(tmp_path) == ["there"]


@pytest.mark.parametrize("make", ["file", "link", "pipe"])
def test_what_is_there_is_neither_opened_nor_removed(tmp_path, make):
    path = tmp_path / "new"
    {"file": path.touch, "link": lambda: path.symlink_to("/none"), "pipe": lambda: os.mkfifo(path)}[make]()
    with pytest.raises(FileExistsError), new_file(str(path)):
        pass
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_staged_file_keeps_its_set_id_bits_with_another_owner(tmp_path):
    ledger.write_file(str(tmp_path / "a"), b"x", 0o4755, 1234, 1234)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o4755
