"""The lab's images and set-up where the engine refuses: they print the reason, and the caller lives."""

import os
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: Path):
    """Run a command of the checkout with programs of the test's before all others in PATH."""

    def run(*command: str, **programs: str) -> subprocess.CompletedProcess[str]:
        for name, body in programs.items():
            (tmp_path / name.replace("_", "-")).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / name.replace("_", "-")).chmod(0o755)
        environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NODE_DEVICES_ENGINE": "docker"}
        # A process group of its own, as a shell's job: it is what a signal to the whole group would end.
        return subprocess.run(
            [CHECKOUT / command[0], *command[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    return run


def test_an_engine_that_does_not_answer_is_said_before_anything_is_made(run, tmp_path):
    result = run(
        "lab/roles/lab_node/files/node_image.py",
        "trixie",
        docker="echo 'Cannot connect to the Docker daemon' >&2; exit 1",
        mmdebstrap=f"touch {tmp_path}/made",
    )
    assert result.returncode == 1
    assert "Cannot connect to the Docker daemon" in result.stderr
    assert not (tmp_path / "made").exists()


def test_an_import_that_fails_says_why_and_leaves_the_caller_alive(run):
    """mmdebstrap answers a broken pipe with SIGHUP for its whole process group: seen ending `make` without a word."""
    result = run(
        "lab/roles/lab_node/files/node_image.py",
        "trixie",
        docker='case $1 in ps) ;; image) exit 1 ;; import) echo "no space left on device" >&2; exit 1 ;; esac',
        mmdebstrap="trap '' HUP; kill -HUP 0; echo 'E: broken pipe' >&2; exit 1",
    )
    assert result.returncode == 1
    assert "no space left on device" in result.stderr
    assert "E: broken pipe" in result.stderr


def test_a_base_that_is_pulled_gets_the_packages_and_a_name_of_its_own(run, tmp_path, monkeypatch):
    engine = f'echo "$@" >>{tmp_path}/calls; case $1 in image) exit 1 ;; esac'
    names = {}
    for base in ("official", "mirror.example/debian:RELEASE-slim"):
        monkeypatch.setenv("LAB_BASE", base)
        (tmp_path / "calls").unlink(missing_ok=True)
        result = run("lab/roles/lab_node/files/node_image.py", "trixie", docker=engine, mmdebstrap="exit 1")
        assert result.returncode == 0, result.stderr
        calls = (tmp_path / "calls").read_text().splitlines()
        made, node = (line for line in calls if line.startswith("build "))
        pulled = base.replace("official", "docker.io/library/debian:RELEASE-slim").replace("RELEASE", "trixie")
        assert f"BASE={pulled} " in made
        assert " containerd " in made
        assert "path-exclude=/usr/share/man/*" in made
        names[base] = node.partition("BASE=")[2].split()[0]
        assert f"--tag {names[base]} " in made
    assert len(set(names.values())) == 2


def test_a_base_without_a_place_for_the_release_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_BASE", "debian:trixie")
    result = run("lab/roles/lab_node/files/node_image.py", "trixie", docker=f"echo $1 >>{tmp_path}/calls")
    assert result.returncode == 1
    assert (
        "LAB_BASE=debian:trixie: the image is for one release only: use official, or a name with RELEASE"
        in result.stderr
    )
    assert (tmp_path / "calls").read_text().split() == ["ps"]
