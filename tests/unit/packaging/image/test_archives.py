"""An archive has the same bytes for the same image, whoever saved it, and when."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import archives
import pytest

TAG = "localhost/node-devices/node-device-plugin:1.2.3"


def layer(text: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("file")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


BASE, OWN = layer("base"), layer("own")


def saved(path: Path, configuration: dict, layers: dict[str, bytes]) -> Path:
    """What an engine's `save` writes: its own names, in any order, and more than the manifest names."""
    manifest = [{"Config": "config", "RepoTags": ["something:else"], "Layers": list(layers)}]
    files = {"repositories": b"{}", "config": json.dumps(configuration).encode(), **layers}
    with tarfile.open(path, "w") as archive:
        for name, content in {**files, "manifest.json": json.dumps(manifest).encode()}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1_700_000_000
            archive.addfile(member, io.BytesIO(content))
    return path


def configuration(host: str, created: str) -> dict:
    return {
        "container": host * 2,
        "container_config": {"Hostname": host},
        "docker_version": "",
        "architecture": "arm64",
        "os": "linux",
        "created": created,
        "config": {"Hostname": host, "Entrypoint": ["/a"], "Cmd": ["run"], "User": "0:0", "Tty": False, "OnBuild": []},
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in (BASE, OWN)],
        },
        "history": [{"created": created, "created_by": "COPY"}, {"created": created, "empty_layer": True}],
    }


def test_what_differs_from_build_to_build_is_not_in_the_archive(tmp_path):
    one = saved(tmp_path / "1", configuration("a1", "2026-01-01T00:00:00Z"), {"x/layer.tar": BASE, "y/layer.tar": OWN})
    # As docker's containerd store saves it.
    blobs = {"blobs/sha256/x": gzip.compress(BASE, mtime=7), "blobs/sha256/y": gzip.compress(OWN, mtime=8)}
    two = saved(tmp_path / "2", configuration("b2", "2026-02-02T00:00:00Z"), blobs)
    images = [archives.rewrite(each, tmp_path / f"{each.name}.tar", TAG) for each in (one, two)]
    assert images[0] == images[1]
    assert images[0].layers == (len(BASE), len(OWN))
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_the_archive_holds_one_image_with_one_name(tmp_path):
    one = saved(tmp_path / "1", configuration("a1", "2026-01-01T00:00:00Z"), {"x/layer.tar": BASE, "y/layer.tar": OWN})
    image = archives.rewrite(one, tmp_path / "out.tar", TAG)
    with tarfile.open(tmp_path / "out.tar") as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        text = archive.extractfile(manifest["Config"]).read()
        oci = {"oci-layout", "index.json", *{path_of(each) for each in index(archive)["manifests"]}}
        assert sorted(archive.getnames()) == sorted({"manifest.json", manifest["Config"], *manifest["Layers"], *oci})
        assert [archive.extractfile(name).read() for name in manifest["Layers"]] == [BASE, OWN]
    assert manifest["RepoTags"] == [TAG]
    assert image.id == f"sha256:{hashlib.sha256(text).hexdigest()}"
    assert json.loads(text) == {
        "architecture": "arm64",
        "os": "linux",
        "created": archives.EPOCH,
        "config": {"Entrypoint": ["/a"], "Cmd": ["run"], "User": "0:0"},
        "rootfs": configuration("", "")["rootfs"],
        "history": [
            {"created": archives.EPOCH, "created_by": "COPY"},
            {"created": archives.EPOCH, "empty_layer": True},
        ],
    }


def read(archive: tarfile.TarFile, name: str) -> bytes:
    return archive.extractfile(name).read()


def path_of(descriptor: dict) -> str:
    return "blobs/" + descriptor["digest"].replace(":", "/")


def index(archive: tarfile.TarFile) -> dict:
    return json.loads(read(archive, "index.json"))


def oci_manifest(archive: tarfile.TarFile) -> dict:
    (described,) = index(archive)["manifests"]
    return json.loads(read(archive, path_of(described)))


def test_it_is_an_oci_layout_whose_descriptors_are_true(tmp_path):
    one = saved(tmp_path / "1", configuration("a1", "2026-01-01T00:00:00Z"), {"x/layer.tar": BASE, "y/layer.tar": OWN})
    image = archives.rewrite(one, tmp_path / "out.tar", TAG)
    with tarfile.open(tmp_path / "out.tar") as archive:
        assert json.loads(read(archive, "oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        (described,) = index(archive)["manifests"]
        assert described["platform"] == {"architecture": "arm64", "os": "linux"}
        assert described["annotations"] == {
            "io.containerd.image.name": TAG,
            "org.opencontainers.image.ref.name": "1.2.3",
        }
        manifest = oci_manifest(archive)
        assert manifest["config"]["digest"] == image.id
        for each in (described, manifest["config"], *manifest["layers"]):
            content = read(archive, path_of(each))
            assert (each["digest"], each["size"]) == (f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def test_a_layer_that_an_image_has_twice_is_written_once(tmp_path):
    layers = [io.BytesIO(OWN), io.BytesIO(OWN)]
    archives.write(tmp_path / "out.tar", {}, layers, TAG)
    with tarfile.open(tmp_path / "out.tar") as archive:
        assert [path_of(each) for each in oci_manifest(archive)["layers"]] == [
            f"blobs/sha256/{archives.sha256(layers[0])}"
        ] * 2
        assert len(archive.getnames()) == len(set(archive.getnames())) == 6


def test_an_archive_that_cannot_be_written_leaves_the_last_one(tmp_path):
    class FailsLate(io.BytesIO):
        def read(self, size=-1):
            raise OSError("disk full")

    (tmp_path / "out.tar").write_text("the last one")
    with pytest.raises(OSError, match="disk full"):
        archives.write(tmp_path / "out.tar", {}, [FailsLate(OWN)], TAG)
    assert [path.name for path in tmp_path.iterdir()] == ["out.tar"]
    assert (tmp_path / "out.tar").read_text() == "the last one"
