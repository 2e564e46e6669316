"""Reads of what a pod or another user wrote end soon, and take little memory."""

from __future__ import annotations

import os
import socket
import time

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import bounded_reads


def test_a_regular_file_is_read_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 200_000)
    (tmp_path / "link").symlink_to(path)
    for each in (path, tmp_path / "link"):
        assert bounded_reads.read_file(str(each)) == b"x" * 200_000
    assert bounded_reads.text_of("/proc/self/comm")
    path.write_bytes(b"\xff")
    assert bounded_reads.text_of(str(path)) is None


@pytest.mark.parametrize("kind", ["fifo", "directory", "socket", "zero", "terminal", "link"])
def test_all_else_is_refused_without_opening_it(tmp_path, monkeypatch, kind):
    """An open waits for the other end of a pipe, and of a device it may have an effect: a watchdog starts."""
    path, opened, really = tmp_path / "x", [], os.open
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "socket":
            monkeypatch.chdir(tmp_path)
            server.bind("x")
        elif kind == "link":
            (tmp_path / "file").touch()
            path.symlink_to(tmp_path / "file")
        else:
            path.symlink_to("/dev/" + {"zero": "zero", "terminal": "tty"}[kind])

        def record(path, flags, *arguments, **more):
            opened.append(flags & os.O_PATH)
            return really(path, flags, *arguments, **more)

        monkeypatch.setattr(os, "open", record)
        with pytest.raises(OSError, match="is not a regular file"):
            bounded_reads.read_file(str(path), follow=kind != "link")
    assert opened == [os.O_PATH]


def test_a_large_file_is_refused_before_it_is_in_memory(tmp_path):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="is larger than 1000 bytes"):
        bounded_reads.read_file(str(tmp_path / "large"), limit=1000)
    assert bounded_reads.text_of(str(tmp_path / "large")) is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[" * 100_000, "nests too deep"),
        (b"{" + b'"a":{' * 50_000, "nests too deep"),
        (b"[" + b"[]," * 1_000_001 + b"0]", "more than 2000000 values"),
        (b"1" * 101, "more than 100 digits"),
        (b'"\\ud800"', "surrogates not allowed"),
        (b"\xff", "can't decode"),
        (b"{", "Expecting"),
    ],
)
def test_documents_that_are_too_much(content, says):
    with pytest.raises(ValueError, match=says):
        bounded_reads.json_of(content)


def test_documents():
    assert bounded_reads.json_of(b'{"a": ["\\u00e4", 1, 1.5, null]}') == {"a": ["ä", 1, 1.5, None]}


def test_an_answer_that_does_not_end_in_time():
    one, two = socket.socketpair()
    with one, two:
        two.sendall(b"x")
        with pytest.raises(OSError, match=r"took too long|timed out"):
            bounded_reads.received(one, time.monotonic() + 0.05)
        two.sendall(b"y" * 100)
        with pytest.raises(OSError, match="is larger than 50 bytes"):
            bounded_reads.received(one, time.monotonic() + 60, limit=50)


def test_a_directory_that_somebody_fills(tmp_path):
    for number in range(20):
        (tmp_path / str(number)).touch()
    assert len(bounded_reads.entries(str(tmp_path), 15)) == 15
    assert len(bounded_reads.entries(str(tmp_path), 100)) == 20
    assert bounded_reads.entries(str(tmp_path / "none"), 100) == []
