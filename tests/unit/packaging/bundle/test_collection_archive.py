"""The collection's archive without what hangs on the machine that built it."""

import hashlib
import io
import json
import tarfile

import galaxy

FILES = {"README.md": b"read me\n", "plugins/a.py": b"A = 1\n", "roles/generate": b"#!/bin/sh\n"}


def built(path, names, mtime, owner):
    """What ansible-galaxy builds, in the order of a folder, with its dates and owner."""
    entries = [
        {"name": name, "ftype": "file", "chksum_sha256": hashlib.sha256(FILES[name]).hexdigest(), "format": 1}
        for name in names
    ]
    listed = json.dumps({"files": entries, "format": 1}, indent=True).encode()
    checksum = hashlib.sha256(listed).hexdigest()
    manifest = {
        "collection_info": {"namespace": "a", "name": "b", "version": "1.0.0"},
        "file_manifest_file": {"name": "FILES.json", "ftype": "file", "chksum_sha256": checksum, "format": 1},
        "format": 1,
    }
    contents = {"MANIFEST.json": json.dumps(manifest, indent=True).encode(), "FILES.json": listed}
    contents.update((name, FILES[name]) for name in names)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname = len(content), mtime, owner
            member.mode = 0o755 if content.startswith(b"#!") else 0o644
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("inventories/link")
        link.type, link.linkname, link.mtime = tarfile.SYMTYPE, "../README.md", mtime
        archive.addfile(link)
    return path


def test_two_machines_give_the_same_bytes(tmp_path):
    one = built(tmp_path / "one.tar.gz", list(FILES), 1_700_000_000, "root")
    two = built(tmp_path / "two.tar.gz", list(reversed(FILES)), 1_800_000_000, "somebody")
    assert one.read_bytes() != two.read_bytes()
    for path in (one, two):
        (tmp_path / path.stem).mkdir()
        galaxy.level(path, tmp_path / path.stem / "a-b-1.0.0.tar.gz")
    leveled = (tmp_path / "one.tar/a-b-1.0.0.tar.gz").read_bytes()
    assert leveled == (tmp_path / "two.tar/a-b-1.0.0.tar.gz").read_bytes()
    # gzip's own header: neither a name nor a date (RFC 1952, FLG and MTIME).
    assert leveled[3:8] == bytes(5)


def test_it_is_the_same_collection(tmp_path):
    galaxy.level(built(tmp_path / "built.tar.gz", list(reversed(FILES)), 7, "root"), tmp_path / "out.tar.gz")
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
        assert archive.getmember("inventories/link").linkname == "../README.md"
        assert archive.getmember("roles/generate").mode == 0o755
        assert archive.getmember("plugins/a.py").mode == 0o644
    assert {name: found[name] for name in FILES} == FILES
    # ansible-galaxy refuses an archive whose checksums are not right.
    manifest = json.loads(found["MANIFEST.json"])
    assert manifest["file_manifest_file"]["chksum_sha256"] == hashlib.sha256(found["FILES.json"]).hexdigest()
    assert manifest["collection_info"] == {"namespace": "a", "name": "b", "version": "1.0.0"}
    assert [entry["name"] for entry in json.loads(found["FILES.json"])["files"]] == sorted(FILES)
