"""The record of what ids mean, in a directory that pods may mount."""

import os
from pathlib import Path

import pytest

from node_device_plugin.devices import record
from node_device_plugin.devices.given import Offer
from node_device_plugin.devices.identity import Identity

KEY = ("example.com/dev", "d0")
RECORDED = record.Recorded({KEY: Offer("d0", (Identity("/dev/null", "char/1:3"),))}, {KEY: True})


@pytest.mark.parametrize("what", ["fifo", "zero", "link"])
def test_what_a_pod_puts_in_the_records_place_is_not_opened(tmp_path: Path, what: str) -> None:
    path = tmp_path / record.FILE_NAME
    if what == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if what == "zero" else "/etc/shadow")
    with pytest.raises(OSError, match="is not a regular file"):
        record.load(str(path), None)
    # The next one replaces it.
    record.save(str(path), RECORDED, has_specs=False)
    assert record.load(str(path), None) == RECORDED


@pytest.mark.parametrize("what", ["fifo", "link", "file"])
def test_what_a_pod_puts_in_the_staged_files_place_is_removed(tmp_path: Path, what: str) -> None:
    path, staged = tmp_path / record.FILE_NAME, tmp_path / f".{record.FILE_NAME}.new"
    (tmp_path / "theirs").write_text("theirs")
    if what == "fifo":
        os.mkfifo(staged)
    elif what == "link":
        staged.symlink_to(tmp_path / "theirs")
    else:
        os.link(tmp_path / "theirs", staged)
    record.save(str(path), RECORDED, has_specs=False)
    assert record.load(str(path), None) == RECORDED
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not staged.exists()


def test_a_record_that_is_too_much_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / record.FILE_NAME
    for content in ("[" * 100_000, "9" * 1000, '{"boot_id": 1}'):
        path.write_text(content)
        assert record.load(str(path), None) == record.Recorded({}, {})
