"""Builds the collection's archive for ansible-galaxy. Two builds of the same source tree are byte-identical."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile
import tempfile

from checkout import CHECKOUT, wheels


def archive(directory: pathlib.Path, source: pathlib.Path = CHECKOUT) -> pathlib.Path:
    """Build a collection's archive in a directory with `ansible-galaxy collection build`. source: the collection's."""
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        command = [sys.executable, "-m", "ansible", "galaxy", "collection", "build", str(source)]
        wheels.run([*command, "--output-path", scratch], cwd=CHECKOUT, missing="ansible")
        (built,) = pathlib.Path(scratch).glob("*.tar.gz")
        path = directory / built.name
        level(built, path)
    return path


def level(built: pathlib.Path, path: pathlib.Path) -> None:
    """Rewrite an archive of ansible-galaxy without the machine's dates, owners and directory order.

    MANIFEST.json has the checksum of FILES.json, which has the checksums of all files. Source:
    https://docs.ansible.com/projects/ansible/latest/dev_guide/collections_galaxy_meta.html
    """
    with tarfile.open(built) as source:
        members = {member.name: member for member in source if member.name not in ("MANIFEST.json", "FILES.json")}
        files = json.load(source.extractfile("FILES.json"))
        manifest = json.load(source.extractfile("MANIFEST.json"))
        files["files"].sort(key=lambda entry: entry["name"])
        listed = _json(files)
        manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(listed).hexdigest()
        # Leave the file name in gzip's header empty, because the name would differ between builds.
        with (
            path.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as target,
        ):
            for name, content in (("MANIFEST.json", _json(manifest)), ("FILES.json", listed)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                target.addfile(member, io.BytesIO(content))
            for _name, member in sorted(members.items()):
                member.mtime = member.uid = member.gid = 0
                member.uname = member.gname = ""
                target.addfile(member, source.extractfile(member) if member.isfile() else None)


def _json(content: object) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()
