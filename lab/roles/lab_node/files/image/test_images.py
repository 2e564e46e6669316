"""Write a docker-archive with the tests' images, built from one static busybox without a registry.

Usage: test_images.py BUSYBOX ARCHIVE

localhost/node-devices/busybox:lab   the image of test pods
localhost/node-devices/pause:lab     the sandbox image (lab-node-images gives it the name that containerd asks for)
"""

import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile

TAGS = ["localhost/node-devices/busybox:lab", "localhost/node-devices/pause:lab"]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Replaces pause: sleeps, and ends at once on a signal.
PAUSE = b"#!/bin/sh\ntrap 'exit 0' TERM INT\nwhile :; do sleep 86400 & wait $!; done\n"


def add_file(archive, name, data, mode=0o644):
    """Add a regular file, the same bytes in every run."""
    member = tarfile.TarInfo(name)
    member.mode, member.size = mode, len(data)
    archive.addfile(member, io.BytesIO(data))


def layer(busybox):
    """Return a root file system as a tar: busybox under all its names."""
    applets = subprocess.run([busybox, "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(directory)
        with open(busybox, "rb") as file:
            add_file(archive, "bin/busybox", file.read(), 0o755)
        for applet in sorted(set(applets.split()) - {"busybox"}):
            link = tarfile.TarInfo("bin/" + applet)
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        add_file(archive, "bin/pause", PAUSE, 0o755)
        add_file(archive, "etc/passwd", b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    return buffer.getvalue()


def main(busybox, path):
    root = layer(busybox)
    layer_digest = hashlib.sha256(root).hexdigest()
    machine = platform.machine()
    config = json.dumps(
        {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/pause"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer_digest]},
            "history": [{"created": "1970-01-01T00:00:00Z"}],
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    layer_name = layer_digest + "/layer.tar"
    manifest = json.dumps([{"Config": config_name, "RepoTags": TAGS, "Layers": [layer_name]}]).encode()
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        add_file(archive, config_name, config)
        add_file(archive, layer_name, root)
        add_file(archive, "manifest.json", manifest)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
