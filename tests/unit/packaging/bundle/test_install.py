"""The bundle's own program: what it refuses, by name and before anything is written. molecule airgap installs."""

import ast
import hashlib
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import wheels

INSTALL = Path(__file__).parents[4] / "packaging" / "bundle" / "install"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
HERE = {"pythons": [PYTHON], "machines": [platform.machine()], "glibc": [2, 17]}


class Bundle:
    """A small one, whose pip is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = folder.parent / "controller"
        (folder / "wheels").mkdir(parents=True)
        shutil.copy(INSTALL, folder / "install")
        (folder / "controller.txt").write_text("")
        (folder / "wheels/a-1-py3-none-any.whl").write_bytes(b"wheel")
        (folder / "wheels/pip-1-py3-none-any.whl").write_bytes(b"no archive")
        self.describe()

    def describe(self, **controllers: object) -> None:
        facts = {
            "version": "9",
            "collection": "c.tar.gz",
            "pip": "pip-1-py3-none-any.whl",
            "controllers": {**HERE, **controllers},
        }
        (self.folder / "bundle.json").write_text(json.dumps(facts))
        names = ["bundle.json", "controller.txt", "install", "wheels/a-1-py3-none-any.whl"]
        names.append("wheels/pip-1-py3-none-any.whl")
        sums = [f"{hashlib.sha256((self.folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
        (self.folder / "SHA256SUMS").write_text("".join(sums))

    def install(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, self.folder / "install", *(arguments or [self.target])]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def bundle(tmp_path):
    return Bundle(tmp_path / "bundle")


def refused(bundle):
    """What it says in its one line, with nothing made."""
    done = bundle.install()
    assert (done.returncode, done.stdout) == (1, "")
    assert not bundle.target.exists()
    (line,) = done.stderr.splitlines()
    return line


def test_a_changed_byte_is_refused_by_the_files_name(bundle):
    (bundle.folder / "wheels/a-1-py3-none-any.whl").write_bytes(b"wheeL")
    assert refused(bundle) == (
        "install: wheels/a-1-py3-none-any.whl does not match its checksum in SHA256SUMS: nothing was installed; "
        "copy the bundle again"
    )


def test_all_that_is_wrong_is_named(bundle):
    (bundle.folder / "controller.txt").unlink()
    (bundle.folder / "bundle.json").write_text("{}")
    said = refused(bundle)
    assert "controller.txt is missing; bundle.json does not match its checksum" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "SHA256SUMS cannot be read"),
        ("nonsense\n", "SHA256SUMS cannot be read"),
        ("", "SHA256SUMS does not list bundle.json, so the bundle is incomplete: copy it again"),
    ],
)
def test_a_bundle_without_its_checksums_is_refused(bundle, text, says):
    (bundle.folder / "SHA256SUMS").unlink()
    if text is not None:
        (bundle.folder / "SHA256SUMS").write_text(text)
    assert says in refused(bundle)


@pytest.mark.parametrize(
    ("controllers", "says"),
    [
        (
            {"pythons": ["3.1", "3.2"]},
            f"CPython {PYTHON}, but the bundle supports controllers with Python 3.1, 3.2: run python3.2 ",
        ),
        ({"machines": ["m68k"]}, f"machine is {platform.machine()}, but the bundle supports controllers on m68k: "),
        ({"glibc": [2, 999]}, "but the bundle supports controllers with glibc 2.999 or later: "),
    ],
)
def test_a_machine_that_it_is_not_for_is_refused(bundle, controllers, says):
    bundle.describe(**controllers)
    assert says in refused(bundle)


def test_a_folder_that_holds_something_is_not_touched(bundle):
    bundle.target.mkdir()
    (bundle.target / "mine").write_text("mine")
    done = bundle.install()
    assert (done.returncode, done.stderr) == (
        1,
        f"install: {bundle.target} exists and is not an empty directory: name a new directory\n",
    )
    assert [path.name for path in bundle.target.iterdir()] == ["mine"]


@pytest.mark.parametrize("there", [False, True])
def test_one_that_fails_leaves_nothing(bundle, there):
    if there:
        bundle.target.mkdir()
    done = bundle.install()
    assert done.returncode == 1
    assert "install: creating the environment\ninstall: python failed:" in done.stderr
    assert "Traceback" not in done.stderr
    assert bundle.target.exists() == there
    assert not there or not list(bundle.target.iterdir())


@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("--nonsense",)])
def test_anything_else_than_a_folder_gets_the_usage(bundle, arguments):
    command = [sys.executable, bundle.folder / "install", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Usage: install DIRECTORY" in done.stderr


def test_an_older_python_can_read_what_it_is_told():
    ast.parse(INSTALL.read_text(), feature_version=(3, 6))


def test_wheels_go_where_role_node_tools_looks():
    (places,) = (
        node.value.value
        for node in ast.parse(INSTALL.read_text()).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "WHEELS"
    )
    assert Path(sys.prefix) / places == wheels.BUNDLED
