"""Which Pythons and architectures a bundle is for: all that are known, or those that are named."""

import subprocess
import sys
from pathlib import Path

import pytest
from choices import ARCHITECTURES, CONTROLLER_PYTHONS, NODE_PYTHONS, Choice, ChoiceError, choose

CHECKOUT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", NODE_PYTHONS),
        ("3.13", ("3.13",)),
        # In one order, so that the bytes are the same; and each once.
        ("3.13,3.9 3.9", ("3.9", "3.13")),
        (" 3.10 , 3.11 ", ("3.10", "3.11")),
    ],
)
def test_all_that_are_known_or_those_that_are_named(text, chosen):
    assert choose("--node-python", text, NODE_PYTHONS) == chosen


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("3.8", "--node-arch: 3.8 is not supported; use one of amd64, arm64"),
        ("amd64,x86_64", "--node-arch: x86_64 is not supported; use one of amd64, arm64"),
        (",", "--node-arch: the list is empty; use one or more of amd64, arm64"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(text, says):
    with pytest.raises(ChoiceError) as refused:
        choose("--node-arch", text, ARCHITECTURES)
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--node-python=3.8"],
            "--node-python (NODE_PYTHON): 3.8 is not supported; use one of 3.9, 3.10, 3.11, 3.12, 3.13, 3.14",
        ),
        (
            ["--controller-python=3.9"],
            "--controller-python (CONTROLLER_PYTHON): 3.9 is not supported; use one of 3.11, 3.12, 3.13",
        ),
        (
            ["--controller-arch=s390x"],
            "--controller-arch (CONTROLLER_ARCH): s390x is not supported; use one of amd64, arm64",
        ),
        (["--image=perhaps"], "--image (BUNDLE_IMAGE): perhaps is not supported; use one of auto, yes, no"),
        (["--image=yes,no"], "--image (BUNDLE_IMAGE): yes and no exclude each other; use one of them"),
    ],
)
def test_the_program_says_it_in_one_line_before_it_makes_anything(tmp_path, arguments, says):
    program = [sys.executable, CHECKOUT / "packaging/bundle/build", "--output", tmp_path / "out", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"bundle: {says}\n")
    assert not (tmp_path / "out").exists()


def test_a_target_for_each_python_and_architecture():
    targets = Choice(("3.9", "3.14"), ("amd64", "arm64"), (2, 17)).targets()
    assert [target.name for target in targets] == ["cp39-x86_64", "cp314-x86_64", "cp39-aarch64", "cp314-aarch64"]
    assert {target.glibc for target in targets} == {(2, 17)}


def test_controllers_have_what_setup_asks_for():
    """tools/setup names the oldest, too."""
    assert f"needs Python {CONTROLLER_PYTHONS[0]} or later" in (CHECKOUT / "tools/setup").read_text()
