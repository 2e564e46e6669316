"""What the image is: how big, of what, and the same each time."""

from __future__ import annotations

import hashlib
import re
import struct

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels
from built_image import build, engine

# Seconds, with an image that is built before.
pytestmark = pytest.mark.timeout(1200)

ENVIRONMENT = "opt/node-device-plugin/lib/python3.13/site-packages"
AARCH64 = 183  # e_machine of an ELF header


def bytecode(image):
    """The compiled modules in the last layer, by path."""
    return {path: content for path, (_, content) in image.files(-1).items() if path.endswith(".pyc")}


def test_it_adds_at_most_45_megabytes_to_its_base(image, capsys):
    layers = [sum(member.size for member, _ in image.files(number).values()) for number in (0, 1)]
    with capsys.disabled():
        print(f"\n{image.said[1]}")
    assert len(image.manifest()["Layers"]) == 2
    assert 15e6 < layers[1] <= 45e6
    # What is printed is the tar's size, which is a little more.
    assert layers[1] / 1e6 <= float(image.said[1].split()[2]) < layers[1] / 1e6 + 2


def test_its_configuration_says_what_it_is_and_runs_without_a_shell(image):
    configuration = image.configuration()
    version = wheels.version()
    assert image.manifest()["RepoTags"] == [f"localhost/node-devices/image-test:{version}"]
    assert configuration["os"] == "linux"
    config = configuration["config"]
    assert config["Entrypoint"] == ["/usr/local/bin/node-device-plugin"]
    assert config["Cmd"] == ["run"]
    assert config["User"] == "0:0"
    assert config["WorkingDir"] == "/"
    assert "PYTHONDONTWRITEBYTECODE=1" in config["Env"]
    prefix = "org.opencontainers.image."
    labels = {key.removeprefix(prefix): value for key, value in config["Labels"].items()}
    assert {key: labels[key] for key in ("title", "version", "licenses")} == {
        "title": "node-device-plugin",
        "version": version,
        "licenses": "Apache-2.0",
    }
    assert labels["base.name"].startswith("localhost/node-devices/python-only:trixie-")


def test_the_base_from_debian_has_no_other_program_than_python(image):
    base = image.files(0)
    programs = {path for path in base if path.startswith(("usr/bin/", "usr/sbin/", "usr/local/"))}
    assert programs == {"usr/bin/python3", "usr/bin/python3.13"}
    assert base["bin"][0].linkname == "usr/bin"
    # Nothing of the machine that made it.
    assert not {"etc/hostname", "etc/resolv.conf", "etc/apt/sources.list"} & set(base)
    # Scanners read the versions here; the hashes say which packages these were.
    packages = {path: content[1] for path, content in base.items() if path.startswith("var/lib/dpkg/status.d/")}
    assert "var/lib/dpkg/status.d/python3.13" in packages
    for content in filter(None, packages.values()):
        assert re.search(rb"\nVersion: \S+\n", content)
        assert len(re.findall(rb"^SHA256: [0-9a-f]{64}$", content, re.M)) == 1
    assert base["usr/share/doc/python3.13/copyright"][1]


def test_every_module_is_compiled_for_good(image):
    """An unchecked hash-based pyc (PEP 552) is never compared with its source, whatever the dates say."""
    files, compiled = image.files(-1), bytecode(image)
    sources = [path for path in files if path.startswith(f"{ENVIRONMENT}/") and path.endswith(".py")]
    assert f"{ENVIRONMENT}/node_device_plugin/daemon/main.py" in sources
    for path in sources:
        folder, _, name = path.rpartition("/")
        assert f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-313.pyc" in compiled
    assert "usr/lib/python3.13/asyncio/__pycache__/base_events.cpython-313.pyc" in compiled
    assert {struct.unpack("<I", content[4:8])[0] for content in compiled.values()} == {1}
    # Readable for whoever it is run as.
    assert {member.mode & 0o444 for member, _ in files.values() if member.isreg()} == {0o444}


def test_two_builds_are_the_same_bytes(image, tmp_path):
    again = build(tmp_path, umask=0o077)
    assert again.said[:2] == image.said[:2]
    assert [hashlib.sha256(each.archive.read_bytes()).hexdigest() for each in (image, again)] == [
        hashlib.sha256(again.archive.read_bytes()).hexdigest()
    ] * 2
    # The engine has what the archive has.
    identity = engine("image", "inspect", "--format", "{{.Id}}", image.name).stdout.strip().removeprefix("sha256:")
    assert image.manifest()["Config"] == f"blobs/sha256/{identity}"
    assert image.said[0].split()[1] == f"sha256:{identity}"


def test_the_image_for_arm64_is_for_arm64_alone(image, tmp_path):
    other = build(tmp_path, "--arch", "arm64")
    assert other.archive.name.endswith("-arm64.tar")
    assert other.configuration()["architecture"] == "arm64"
    assert other.manifest()["RepoTags"] == image.manifest()["RepoTags"]
    for layer in (0, 1):
        programs = [content for _, content in other.files(layer).values() if content.startswith(b"\x7fELF")]
        assert programs
        assert {struct.unpack("<H", content[18:20])[0] for content in programs} == {AARCH64}
    path = f"{ENVIRONMENT}/node_device_plugin/daemon/__pycache__/main.cpython-313.pyc"
    assert bytecode(other)[path] == bytecode(image)[path]
    # The engine still has the one for this machine.
    assert engine("image", "inspect", "--format", "{{.Architecture}}", image.name).stdout != "arm64\n"
