"""A bundle's archive: the same bytes for the same files, and checksums that `sha256sum` reads."""

import os
import subprocess
import tarfile

import packing
import pytest


@pytest.fixture
def files(tmp_path):
    """A program, a text and bytes that are in no file."""
    (tmp_path / "install").write_text("#!/bin/sh\n")
    (tmp_path / "a.whl").write_bytes(b"\0wheel")
    return {"wheels/a.whl": tmp_path / "a.whl", "install": tmp_path / "install", "README.md": b"text\n"}


def test_the_bytes_hang_on_the_files_alone(tmp_path, files):
    paths = [tmp_path / name / "node-devices-1.tar" for name in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
    packing.write(paths[0], files)
    for path in (tmp_path / "install", tmp_path / "a.whl"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    before = os.umask(0o077)
    try:
        packing.write(paths[1], dict(reversed(files.items())))
    finally:
        os.umask(before)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    packing.write(paths[1], {**files, "README.md": b"another\n"})
    assert paths[0].read_bytes() != paths[1].read_bytes()


def test_it_is_one_folder_that_sha256sum_checks(tmp_path, files):
    packing.write(tmp_path / "node-devices-1.tar", files)
    with tarfile.open(tmp_path / "node-devices-1.tar") as archive:
        assert {member.name: oct(member.mode) for member in archive} == {
            "node-devices-1/SHA256SUMS": "0o644",
            "node-devices-1/README.md": "0o644",
            "node-devices-1/install": "0o755",
            "node-devices-1/wheels/a.whl": "0o644",
        }
        archive.extractall(tmp_path, filter="data")
    said = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=tmp_path / "node-devices-1",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.splitlines() == ["README.md: OK", "install: OK", "wheels/a.whl: OK"]


def test_one_that_cannot_be_written_leaves_the_last_one(tmp_path, files, monkeypatch):
    path = tmp_path / "out" / "node-devices-1.tar"
    path.parent.mkdir()
    path.write_text("the last one")

    def full(*_arguments):
        raise OSError("disk full")

    monkeypatch.setattr(packing.tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="disk full"):
        packing.write(path, files)
    assert {each.name: each.read_text() for each in path.parent.iterdir()} == {path.name: "the last one"}
