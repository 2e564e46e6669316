"""The root file systems that nodes are made of: Debian's packages, from its archive or upon an image that is pulled."""

from __future__ import annotations

import os
import pathlib
import subprocess

from image_building import ENGINE, NAME, BuildError, Progress, digest, engine, mmdebstrap, run_reporting

HERE = pathlib.Path(__file__).resolve().parent
_RECIPE = HERE / "base.Containerfile"
#: What LAB_BASE says for it, and in it, where a release's name goes.
OFFICIAL, RELEASE = "official", "RELEASE"
_OFFICIAL_IMAGE = f"docker.io/library/debian:{RELEASE}-slim"

# No pip and no ensurepip: a bare Debian has neither.
_NODE = (
    "busybox-static ca-certificates containerd containernetworking-plugins dbus iproute2 openssh-server procps"
    " python3 runc systemd systemd-sysv udev"
)
PACKAGES = {
    "node": _NODE,
    "podman": f"{_NODE} podman",
    "python": "ca-certificates python3 python3-venv",
}
# What nobody reads in a throwaway container; it is a third of the size and of the time.
_DPKG_OPTIONS = [
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/lib/udev/hwdb.d/*",
    "path-exclude=/usr/lib/cni/*",
    "path-include=/usr/lib/cni/loopback",
    # A pod network within a node, and its addresses: role lab_cluster.
    "path-include=/usr/lib/cni/ptp",
    "path-include=/usr/lib/cni/host-local",
]
_OPTIONS = [
    "--variant=minbase",
    "--aptopt=Acquire::Check-Valid-Until false",
    "--aptopt=Acquire::Languages none",
    "--dpkgopt=force-unsafe-io",
    *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
]


def base_name(kind: str, release: str) -> str:
    """The image's name, by what it is made of. BuildError where LAB_BASE says nothing that can be understood."""
    image = _pulled(release)
    how = [image, *_DPKG_OPTIONS, _RECIPE.read_bytes()] if image else _OPTIONS
    return f"{NAME}/{'python' if kind == 'python' else 'base'}:{release}-{digest(release, PACKAGES[kind], *how)}"


def build_base(progress: Progress, image: str, kind: str, release: str) -> None:
    """Make it. BuildError where that does not work out."""
    pulled = _pulled(release)
    if pulled:
        _add_packages(progress, image, kind, pulled)
    else:
        _bootstrap(progress, image, kind, release)


def _pulled(release: str) -> str | None:
    """The image that LAB_BASE asks for; None for Debian's archive."""
    wanted = os.environ.get("LAB_BASE", "")
    if not wanted:
        return None
    name = _OFFICIAL_IMAGE if wanted == OFFICIAL else wanted
    if RELEASE not in name:
        raise BuildError(
            f"LAB_BASE={wanted}: it is {OFFICIAL}, or an image's name with {RELEASE} where trixie and the others go, "
            f"such as mirror.example/debian:{RELEASE}-slim"
        )
    return name.replace(RELEASE, release)


def _add_packages(progress: Progress, image: str, kind: str, pulled: str) -> None:
    """Install the packages upon an image of Debian."""
    progress.say(f"installing packages upon {pulled}")
    arguments = {"BASE": pulled, "PACKAGES": PACKAGES[kind], "DPKG_OPTIONS": " ".join(_DPKG_OPTIONS)}
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    # Nothing of the folder goes into it.
    engine("build", "--network", "host", *given, "--file", str(_RECIPE), "--tag", image, str(HERE))


def _bootstrap(progress: Progress, image: str, kind: str, release: str) -> None:
    """Make a root file system of Debian packages and import it."""
    packages = PACKAGES[kind].replace(" ", ",")
    bootstrap = mmdebstrap(*_OPTIONS, f"--include={packages}", release, "-")
    importing = subprocess.Popen(
        [ENGINE, "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert importing.stdin is not None
    failure = None
    try:
        run_reporting(progress, bootstrap, stdout=importing.stdin.fileno())
        progress.say("importing")
    except BuildError as error:
        failure = error
    imported, problem = importing.communicate()
    if importing.returncode:
        # Each can be the other's reason: an import that ends early, or half an archive.
        raise BuildError(f"importing {image} failed:\n{problem}{failure or ''}")
    # Only a whole root file system gets the name.
    if failure:
        engine("image", "rm", imported.strip())
        raise failure
    engine("tag", imported.strip(), image)
