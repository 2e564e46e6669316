"""What goes into a bundle: wheels of both locks for every target, images where they can be had, and what says so."""

import json

import contents
import pytest
from checkout import Progress, locked_wheels, wheels
from choices import Choice, ChoiceError

NODES = Choice(("3.9", "3.13"), ("arm64",), (2, 17))
CONTROLLERS = Choice(("3.11",), ("amd64",), (2, 28))
GATHERED = {"pip-26.3-py3-none-any.whl", "pipx-1-py3-none-any.whl", "a-1-py3-none-any.whl"}


def test_wheels_of_both_locks_for_every_target(tmp_path, monkeypatch):
    asked = []

    def find(lock, target, store):
        asked.append((lock.name, target.name, target.glibc))
        assert store == tmp_path / "node-devices/wheels"
        return [locked_wheels.Wheel(store / f"{lock.stem}-{target.name}.whl", "")]

    def of_nodes(target, store):
        asked.append(target)
        assert store == tmp_path / "node-devices/wheels"
        return [wheels.Wheel(store / f"node-{target}.whl", "")]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(locked_wheels, "find", find)
    monkeypatch.setattr(wheels, "find", of_nodes)
    gathered = contents.gather(NODES, CONTROLLERS, Progress("test"))
    assert asked == [
        "cp39-aarch64",
        "cp313-aarch64",
        ("controller.txt", "cp311-x86_64", (2, 28)),
    ]
    own = f"node_device_plugin-{wheels.version()}-py3-none-any.whl"
    assert set(gathered) == {own, "node-cp39-aarch64.whl", "node-cp313-aarch64.whl", "controller-cp311-x86_64.whl"}
    assert gathered[own].is_file()


def test_the_locks_are_those_of_the_checkout():
    assert {"ansible-core", "hatchling", "pip"} <= {
        entry.name for entry in locked_wheels.read_lock(contents.CONTROLLER_LOCK)
    }


@pytest.fixture
def build(tmp_path, monkeypatch):
    """packaging/image/build is a script of the test's."""

    def does(body):
        program = tmp_path / "build"
        program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n{body}\n')
        program.chmod(0o755)
        monkeypatch.setattr(contents, "IMAGE_BUILD", program)

    return does


def test_an_image_for_each_architecture_of_the_nodes(tmp_path, build):
    build('echo name; echo "83 MB"; echo "$4/image-$2.tar"')
    both = NODES._replace(architectures=("amd64", "arm64"))
    made = contents.images(both, ["--base", "debian"], tmp_path, Progress("test"), required=True)
    assert made == {f"image-{each}.tar": tmp_path / f"image-{each}.tar" for each in ("amd64", "arm64")}
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"--arch {each} --output {tmp_path} --base debian" for each in ("amd64", "arm64")
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo 'a line' >&2; echo 'image: engine: no podman here' >&2; exit 1", "engine: no podman here"),
        ("exit 7", "packaging/image/build ended with exit code 7"),
    ],
)
def test_without_an_image_it_says_so_and_why(tmp_path, build, capsys, body, reason):
    build(body)
    assert contents.images(NODES, [], tmp_path, Progress("test"), required=False) == {}
    said = capsys.readouterr().err.splitlines()
    without = "no image for arm64 in the bundle, so the DaemonSet mode needs another image"
    assert f"bundle: warning: {without}: {reason}" in said
    with pytest.raises(ChoiceError, match=rf"^image for arm64 \(BUNDLE_IMAGE=no builds none\): {reason}$"):
        contents.images(NODES, [], tmp_path, Progress("test"), required=True)


def files(tmp_path, images=()):
    return contents.files(
        NODES,
        CONTROLLERS,
        tmp_path / "nodedevices-kubernetes-9.tar.gz",
        {name: tmp_path / name for name in GATHERED},
        {name: tmp_path / name for name in images},
    )


def test_every_part_has_its_place(tmp_path):
    found = files(tmp_path, ["node-device-plugin-9-arm64.tar"])
    assert sorted(found) == [
        "README.md",
        "bundle.json",
        "controller.txt",
        "images/node-device-plugin-9-arm64.tar",
        "install",
        "nodedevices-kubernetes-9.tar.gz",
        *(f"wheels/{name}" for name in sorted(GATHERED)),
    ]
    assert json.loads(found["bundle.json"]) == {
        "version": wheels.version(),
        "collection": "nodedevices-kubernetes-9.tar.gz",
        "pip": "pip-26.3-py3-none-any.whl",
        "images": ["node-device-plugin-9-arm64.tar"],
        "nodes": {"pythons": ["3.9", "3.13"], "machines": ["aarch64"], "glibc": [2, 17]},
        "controllers": {"pythons": ["3.11"], "machines": ["x86_64"], "glibc": [2, 28]},
    }


def test_its_readme_says_what_it_is_for(tmp_path):
    text = files(tmp_path)["README.md"].decode()
    assert "@" not in text
    for words in (
        "| nodes | Python 3.9, 3.13 on arm64 (glibc 2.17 or later) |",
        "| controllers | Python 3.11 on amd64 (glibc 2.28 or later) |",
        "| images | none; the DaemonSet mode needs an image from another source |",
    ):
        assert words in text
    assert "| images | `images/a.tar`, `images/b.tar` |" in files(tmp_path, ["b.tar", "a.tar"])["README.md"].decode()
