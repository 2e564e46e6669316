"""Writes a bundle's archive, which has one directory with files and their checksums. The archive is reproducible.

The archive is not compressed, because its bytes must not depend on a compressor's version. Wheels and the collection
are already compressed.
"""

from __future__ import annotations

import hashlib
import io
import os
import pathlib
import tarfile
from collections.abc import Mapping

from checkout import wheels

SUMS = "SHA256SUMS"


def sums(files: Mapping[str, pathlib.Path | bytes]) -> str:
    """Return the files' checksums in the format of `sha256sum`, sorted by name."""
    digests = {
        name: hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else wheels.file_digest(content)
        for name, content in files.items()
    }
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def write(path: pathlib.Path, files: Mapping[str, pathlib.Path | bytes]) -> None:
    """Write the archive with one directory, which has the archive's name.

    files: content by path in the directory. SHA256SUMS is added. A file that begins with `#!` becomes executable.
    """
    top = path.name.removesuffix(".tar")
    contents = {SUMS: sums(files).encode(), **dict(sorted(files.items()))}
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
            for name, content in contents.items():
                with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                    member = tarfile.TarInfo(f"{top}/{name}")
                    member.mode = 0o755 if file.read(2) == b"#!" else 0o644
                    member.size = file.seek(0, os.SEEK_END)
                    file.seek(0)
                    archive.addfile(member, file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
