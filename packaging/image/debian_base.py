"""Builds a base from Debian's archive, without a container registry. It contains only Python and its dependencies.

mmdebstrap extracts the packages and runs none of their scripts. Therefore the build needs no emulation for another
architecture. The base has no program except Python, and no shell. Scanners find the packages in
/var/lib/dpkg/status.d, which has one file for each package, as in gcr.io/distroless images.
"""

from __future__ import annotations

import fcntl
import io
import pathlib
import tarfile
import tempfile
from typing import IO

import archives
from engine_calls import CHECKOUT, ask
from image_building import NAME, BuildError, Progress, digest, exists, mmdebstrap, run_reporting

#: The newest stable Debian.
RELEASE = "trixie"
_OPTIONS = [
    "--variant=extract",
    # grpcio's manylinux wheel needs the system's C++ library.
    "--include=base-files,libstdc++6,python3",
    "--aptopt=Acquire::Languages none",
    # Keep the licences.
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    *(
        f"--dpkgopt=path-exclude=/usr/{directory}/*"
        for directory in (
            "bin",
            "sbin",
            "lib/*-linux-gnu/gconv",  # Python has its own codecs
            "lib/*-linux-gnu/perl-base",
            "share/bash-completion",
            "share/debconf",
            "share/info",
            "share/lintian",
            "share/locale",
            "share/man",
            "share/perl5",
        )
    ),
    "--dpkgopt=path-include=/usr/bin/python3*",
    "--extract-hook="
    'mkdir -p "$1/var/lib/dpkg/status.d"; '
    'for deb in "$1"/var/cache/apt/archives/*.deb; do '
    'dpkg-deb --field "$deb" > "$1/var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"; '
    'echo "SHA256: $(sha256sum < "$deb" | cut -d" " -f1)" '
    '>> "$1/var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"; done',
]
#: Files that only the packages' scripts or mmdebstrap need. Some of them come from this machine.
_DROPPED = (
    "./dev/",
    "./etc/apt/",
    "./etc/cron.daily/",
    "./etc/dpkg/",
    "./etc/fstab",
    "./etc/hostname",
    "./etc/logrotate.d/",
    "./etc/resolv.conf",
    "./etc/update-motd.d/",
    "./var/cache/",
    "./var/lib/apt/",
    "./var/lib/dpkg/",
    "./var/log/",
)
_KEPT = ("./dev/", "./var/cache/", "./var/log/", "./var/lib/dpkg/", "./var/lib/dpkg/status.d/")
_LINKS = {"./var/run": "/run", "./var/lock": "/run/lock"}
_FILES = {
    "./etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n",
    "./etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
#: The date of all files. Real dates would be the only difference between two builds.
_MTIME = 0


def name(architecture: str) -> str:
    """Return the base's name. The name contains a hash of this module, so that another recipe has another name."""
    return f"{NAME}/python-only:{RELEASE}-{architecture}-{digest(pathlib.Path(__file__).read_bytes())}"


def ensure(architecture: str) -> str:
    """Build a missing base. Return the base's name. Raises BuildError. architecture: amd64 or arm64."""
    image = name(architecture)
    state = CHECKOUT / ".image"
    state.mkdir(exist_ok=True)
    with (state / f"base-{architecture}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not exists(image):
            progress = Progress(f"{RELEASE} {architecture}")
            progress.say(f"building {image} from Debian's archive")
            with tempfile.TemporaryDirectory(dir=state) as scratch, progress.heartbeat():
                _make(progress, pathlib.Path(scratch), image, architecture)
            progress.say("ready")
    return image


def _make(progress: Progress, scratch: pathlib.Path, image: str, architecture: str) -> None:
    raw, layer, archive = (scratch / each for each in ("raw.tar", "layer.tar", "image.tar"))
    with raw.open("wb") as output:
        command = mmdebstrap(*_OPTIONS, f"--architectures={architecture}", "--format=tar", RELEASE, "-")
        run_reporting(progress, command, stdout=output.fileno())
    progress.say("loading")
    with raw.open("rb") as source, layer.open("w+b") as target:
        tidy(source, target)
        diff = archives.sha256(target)
        configuration = {
            "architecture": architecture,
            "os": "linux",
            "created": archives.EPOCH,
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin"], "Cmd": ["python3"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]},
            "history": [{"created": archives.EPOCH, "created_by": f"mmdebstrap {RELEASE}"}],
        }
        archives.write(archive, configuration, [target], image)
    ask("load", "--input", str(archive))
    if not exists(image):
        raise BuildError(f"the engine loaded {archive.name}, but does not list the image {image}")


def tidy(source: IO[bytes], target: IO[bytes]) -> None:
    """Copy mmdebstrap's tar without this machine's dates and files, so that the same packages give the same bytes."""
    with (
        tarfile.open(fileobj=source) as packages,
        tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as layer,
    ):
        for member in packages:
            path = member.name + "/" * member.isdir()
            if path.startswith(_DROPPED) and not (path in _KEPT or path.startswith("./var/lib/dpkg/status.d/")):
                continue
            if member.name in _LINKS:
                member.type, member.linkname = tarfile.SYMTYPE, _LINKS[member.name]
            member.mtime, member.uname, member.gname, member.pax_headers = _MTIME, "", "", {}
            layer.addfile(member, packages.extractfile(member) if member.isreg() else None)
        for path, text in _FILES.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode, member.mtime = len(text), 0o644, _MTIME
            layer.addfile(member, io.BytesIO(text.encode()))
