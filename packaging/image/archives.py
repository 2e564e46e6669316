"""Writes OCI archives, which `ctr images import`, `kind load image-archive`, `podman load` and `docker load` accept.

An archive has the OCI image layout: index.json names the image's manifest. manifest.json names the same configuration
and layers for docker before version 25, as later versions of `docker save` do. The same image gives the same bytes with
every engine. Sources: https://github.com/opencontainers/image-spec/blob/main/image-layout.md and
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
_OCI = "application/vnd.oci.image"
_BLOBS = "blobs/sha256/"


class Image(NamedTuple):
    """An image in an archive. layers: size of each layer in bytes. The base's layers are first."""

    id: str
    layers: tuple[int, ...]


def write(path: pathlib.Path, configuration: Mapping[str, Any], layers: Sequence[IO[bytes]], tag: str) -> Image:
    """Write an archive of one image.

    layers: seekable tar files; the base's layers are first. tag: the image's name.
    """
    text = _json(configuration)
    identity = hashlib.sha256(text).hexdigest()
    digests = [sha256(layer) for layer in layers]
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor("config.v1+json", identity, len(text)),
            "layers": [
                _descriptor("layer.v1.tar", digest, layer.seek(0, io.SEEK_END))
                for digest, layer in zip(digests, layers, strict=True)
            ],
        }
    )
    of_manifest = hashlib.sha256(manifest).hexdigest()
    named = {
        **_descriptor("manifest.v1+json", of_manifest, len(manifest)),
        "platform": {key: configuration[key] for key in ("architecture", "os", "variant") if key in configuration},
        # containerd and podman read the first name, other tools the second.
        "annotations": {
            "io.containerd.image.name": tag,
            "org.opencontainers.image.ref.name": tag.rpartition(":")[2],
        },
    }
    index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": [named]}
    docker = [{"Config": _BLOBS + identity, "RepoTags": [tag], "Layers": [_BLOBS + digest for digest in digests]}]
    texts = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        "manifest.json": _json(docker),
        _BLOBS + of_manifest: manifest,
        _BLOBS + identity: text,
    }
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
            for name, content in texts.items():
                _add(archive, name, io.BytesIO(content))
            # An image may contain the same layer twice.
            for digest, layer in dict(zip(digests, layers, strict=True)).items():
                _add(archive, _BLOBS + digest, layer)
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


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    """Return what refers to a blob. digest: SHA-256 as hex. size: in bytes."""
    return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": size}


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
