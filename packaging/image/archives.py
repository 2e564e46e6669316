"""Writes docker-archives, which `ctr images import`, `kind load image-archive`, `podman load` and `docker load` accept.

manifest.json names the image's configuration and layers. The same image gives the same bytes with every engine. Source:
https://github.com/moby/docker-image-spec (v1.2, "Combined Image JSON + Filesystem Changeset Format").
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pathlib
import tarfile
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

#: The keys of a configuration. Engines add other keys, such as the build container's id and host name. Source:
#: https://github.com/opencontainers/image-spec/blob/main/config.md
_KEYS = (
    "architecture",
    "variant",
    "os",
    "os.version",
    "os.features",
    "author",
    "created",
    "config",
    "rootfs",
    "history",
)
_CONFIG_KEYS = (
    "User",
    "ExposedPorts",
    "Env",
    "Entrypoint",
    "Cmd",
    "Volumes",
    "WorkingDir",
    "Labels",
    "StopSignal",
    "Healthcheck",  # docker's
)
EPOCH = "1970-01-01T00:00:00Z"


class Image(NamedTuple):
    """An image in an archive. layers: size of each layer in bytes. The base's layers are first."""

    id: str
    layers: tuple[int, ...]


def write(path: pathlib.Path, configuration: Mapping[str, Any], layers: Sequence[IO[bytes]], tag: str) -> Image:
    """Write an archive of one image.

    layers: seekable tar files; the base's layers are first. tag: the image's name.
    """
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":")).encode()
    identity = hashlib.sha256(text).hexdigest()
    names = [f"{sha256(layer)}.tar" for layer in layers]
    manifest = json.dumps([{"Config": f"{identity}.json", "RepoTags": [tag], "Layers": names}]).encode()
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
            _add(archive, "manifest.json", io.BytesIO(manifest))
            _add(archive, f"{identity}.json", io.BytesIO(text))
            # An image may contain the same layer twice.
            for name, layer in dict(zip(names, layers, strict=True)).items():
                _add(archive, name, layer)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return Image(f"sha256:{identity}", tuple(layer.seek(0, io.SEEK_END) for layer in layers))


def rewrite(saved: pathlib.Path, path: pathlib.Path, tag: str) -> Image:
    """Rewrite the archive of an engine's `save` in this module's format, with only this tag."""
    with tarfile.open(saved) as archive:
        (image,) = json.load(archive.extractfile("manifest.json"))
        configuration = normal(json.load(archive.extractfile(image["Config"])))
        layers = [_plain(archive.extractfile(name)) for name in image["Layers"]]
        return write(path, configuration, layers, tag)


def normal(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return an image's configuration without the builder and the dates, which differ between builds."""
    result = {key: configuration[key] for key in _KEYS if key in configuration}
    config = result["config"]
    result["config"] = {key: config[key] for key in _CONFIG_KEYS if config.get(key)}
    result["created"] = EPOCH
    result["history"] = [{**step, "created": EPOCH} for step in result.get("history", [])]
    return result


def sha256(file: IO[bytes]) -> str:
    """Return the digest of a complete file, regardless of its read position."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(layer: IO[bytes]) -> IO[bytes]:
    """Return a layer as an uncompressed tar file. docker's containerd store compresses layers."""
    compressed = layer.read(2) == b"\x1f\x8b"
    layer.seek(0)
    if not compressed:
        return layer
    with gzip.open(layer) as content:
        return io.BytesIO(content.read())


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = content.seek(0, io.SEEK_END)
    member.mode = 0o644
    content.seek(0)
    archive.addfile(member, content)
