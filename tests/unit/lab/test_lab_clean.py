"""What `make lab-clean` leaves below .lab; the nodes and images are away, and their engine is `true`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[3] / "Makefile"


@pytest.fixture
def clean(tmp_path):
    """Runs it in a folder with these files below .lab; gives what it says, and what is left."""
    shutil.copy(MAKEFILE, tmp_path)

    def run(*files):
        for file in files:
            path = tmp_path / ".lab" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        command = ["make", "--no-print-directory", "--old-file=lab-down", "ENGINE=true", "lab-clean"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.name != "Makefile")
        return done.stdout, left

    return run


def test_nothing_is_left_of_the_lab(clean):
    assert clean("ssh/id_ed25519", ".hidden/file", "kubeconfig") == ("", [])
    assert clean() == ("", [])


def test_a_kind_cluster_is_still_known_to_be_ours(clean):
    said, left = clean("ssh/id_ed25519", "kubeconfig", "kind.kubeconfig")
    assert left == [".lab", ".lab/kind.kubeconfig"]
    assert said.endswith(": make kind-down\n")
