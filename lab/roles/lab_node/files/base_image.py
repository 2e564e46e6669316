"""Builds the nodes' root file systems from Debian packages, alone or on a pulled image."""

from __future__ import annotations

import os
import pathlib
import subprocess

from image_building import ENGINE, NAME, BuildError, Progress, digest, engine, mmdebstrap, run_reporting

HERE = pathlib.Path(__file__).resolve().parent
_RECIPE = HERE / "base.Containerfile"
#: LAB_BASE's word for Debian's official image, and the placeholder for a release's name.
OFFICIAL, RELEASE = "official", "RELEASE"
_OFFICIAL_IMAGE = f"docker.io/library/debian:{RELEASE}-slim"

# The packages include neither pip nor ensurepip, as on a minimal Debian.
_NODE = (
    "busybox-static ca-certificates containerd containernetworking-plugins dbus iproute2 openssh-server procps"
    " python3 runc sudo systemd systemd-sysv udev"
)
PACKAGES = {
    "node": _NODE,
    "podman": f"{_NODE} podman",
    "python": "ca-certificates python3 python3-venv",
    "controller": "ca-certificates openssh-client podman python3 python3-venv",
}
#: The kinds that are no nodes.
WITHOUT_NODE = ("python", "controller")
# Exclude files that a throwaway container does not need. They are a third of its size and build time.
_DPKG_OPTIONS = [
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/lib/udev/hwdb.d/*",
    "path-exclude=/usr/lib/cni/*",
    "path-include=/usr/lib/cni/loopback",
    # Role lab_cluster uses these for the pod network and its addresses.
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
    """The image's name, with a hash of its inputs. Raises BuildError if LAB_BASE is invalid."""
    image = _pulled(release)
    how = [image, *_DPKG_OPTIONS, _RECIPE.read_bytes()] if image else _OPTIONS
    return f"{NAME}/{kind if kind in WITHOUT_NODE else 'base'}:{release}-{digest(release, PACKAGES[kind], *how)}"


def build_base(progress: Progress, image: str, kind: str, release: str) -> None:
    """Build the image. Raises BuildError if the build fails."""
    pulled = _pulled(release)
    if pulled:
        _add_packages(progress, image, kind, pulled)
    else:
        _bootstrap(progress, image, kind, release)


def _pulled(release: str) -> str | None:
    """The image in LAB_BASE; None for Debian's archive. Raises BuildError if LAB_BASE is invalid."""
    wanted = os.environ.get("LAB_BASE", "")
    if not wanted:
        return None
    name = _OFFICIAL_IMAGE if wanted == OFFICIAL else wanted
    if RELEASE not in name:
        raise BuildError(
            f"LAB_BASE={wanted}: the image is for one release only: use {OFFICIAL}, or a name with {RELEASE}, "
            f"such as mirror.example/debian:{RELEASE}-slim"
        )
    return name.replace(RELEASE, release)


def _add_packages(progress: Progress, image: str, kind: str, pulled: str) -> None:
    """Install the packages on a Debian image."""
    progress.say(f"installing packages on {pulled}")
    arguments = {"BASE": pulled, "PACKAGES": PACKAGES[kind], "DPKG_OPTIONS": " ".join(_DPKG_OPTIONS)}
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    # The recipe copies nothing from the build context.
    engine("build", "--network", "host", *given, "--file", str(_RECIPE), "--tag", image, str(HERE))


def _bootstrap(progress: Progress, image: str, kind: str, release: str) -> None:
    """Build a root file system from Debian packages and import it."""
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
        # Report both errors, because either error may cause the other.
        raise BuildError(f"importing {image} failed:\n{problem}{failure or ''}")
    # Only a complete root file system gets the name.
    if failure:
        engine("image", "rm", imported.strip())
        raise failure
    engine("tag", imported.strip(), image)
