"""What ansible-builder makes of the collection: every step of the image's build that needs neither an image nor dnf."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from installed import CHECKOUT, Controller

pytestmark = pytest.mark.timeout(900)

#: Imports all that runs on a controller, packs the nodes' code, and builds the plugin's wheel.
RUN = """
import importlib, pathlib, sys
from ansible_collections.nodedevices.kubernetes import plugins
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import node_code, wheels
root = pathlib.Path(wheels.COLLECTION, "plugins")
paths = [path for part in ("action", "filter", "plugin_utils") for path in sorted((root / part).rglob("*.py"))]
for path in paths:
    importlib.import_module(".".join(("", *path.relative_to(root).with_suffix("").parts)), plugins.__name__)
for step in (node_code.archive, lambda: wheels.built(pathlib.Path(sys.argv[1]))):
    try:
        step()
    except Exception as error:
        print(error)
print(len(paths), "modules")
"""


@pytest.fixture(scope="module")
def context(controller: Controller, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build context that ansible-builder renders from the page's file, beside the collection's archive."""
    folder = tmp_path_factory.mktemp("environment")
    page = (CHECKOUT / "docs/collection.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n# execution-environment\.yml\n(.*?)^```", page, re.M | re.S)
    (folder / "execution-environment.yml").write_text(text)
    (archive,) = controller.folder.glob("nodedevices-kubernetes-*.tar.gz")
    (folder / archive.name).write_bytes(archive.read_bytes())
    builder = [sys.executable, "-m", "ansible_builder", "create"]
    subprocess.run(builder, cwd=folder, check=True)
    return folder / "context"


@pytest.fixture(scope="module")
def found(context: Path, controller: Controller) -> Path:
    """Where the rendered script wrote what it found in the collections that the context installs."""
    lines = (context / "Containerfile").read_text().splitlines()
    (install,) = (line for line in lines if "ansible-galaxy collection install" in line)
    assert "-r requirements.yml" in install
    collections = context / "collections"
    galaxy = [
        controller.folder / "venv/bin/ansible-galaxy",
        "collection",
        "install",
        "-r",
        "requirements.yml",
        "--offline",
    ]
    subprocess.run(
        [*galaxy, "--collections-path", collections],
        cwd=context / "_build",
        env={**controller.environment, "ANSIBLE_COLLECTIONS_PATH": str(collections)},
        check=True,
    )
    assert any("introspect.py introspect --write-bindep=" in line for line in lines)
    script = [sys.executable, context / "_build/scripts/introspect.py", "introspect", collections]
    subprocess.run([*script, "--write-pip=pip.txt", "--write-bindep=bindep.txt"], cwd=context, check=True)
    return context


def test_it_renders_what_the_page_says(context: Path) -> None:
    lines = (context / "Containerfile").read_text().splitlines()
    assert 'ARG EE_BASE_IMAGE="quay.io/centos/centos:stream10"' in lines
    locked = (CHECKOUT / "requirements/controller.in").read_text()
    (core,) = re.findall(r"^ansible-core==\S+", locked, re.M)
    assert f'ARG ANSIBLE_INSTALL_REFS="{core} ansible-runner"' in lines
    (collection,) = yaml.safe_load((context / "_build/requirements.yml").read_text())["collections"]
    assert (context / "_build" / collection["name"]).is_file()


def test_it_finds_the_python_and_system_packages(found: Path) -> None:
    source = "# from collection nodedevices.kubernetes"
    lines = [line.partition("  # from")[0] for line in (found / "pip.txt").read_text().splitlines()]
    assert lines == ["hatchling>=1.27", "pip", "tomli<2.4", "tomlkit"]
    assert (found / "bindep.txt").read_text().splitlines() == [
        f"openssh-client [platform:dpkg]  {source}",
        f"openssh-clients [platform:rpm]  {source}",
    ]


@pytest.mark.parametrize(
    ("platform", "package"), [("platform:centos", "openssh-clients"), ("platform:debian", "openssh-client")]
)
def test_each_kind_of_base_image_gets_its_ssh_client(found: Path, platform: str, package: str) -> None:
    from bindep.depends import Depends

    family = {"platform:centos": "platform:rpm", "platform:debian": "platform:dpkg"}[platform]
    depends = Depends((found / "bindep.txt").read_text(), "bindep.txt")
    assert [rule[0] for rule in depends.active_rules([platform, family])] == [package]


def test_the_collection_runs_with_these_python_packages_and_not_without(found: Path, controller: Controller) -> None:
    def run(*path: Path) -> list[str]:
        cache = found / f"cache-{len(path)}"
        done = subprocess.run(
            [str(controller.folder / "venv/bin/python"), "-c", RUN, str(cache)],
            env={**controller.environment, "PYTHONPATH": ":".join(map(str, (found / "collections", *path)))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    without_code, without_hatchling, modules = run()
    assert "has no tomlkit: install requirements/controller.txt" in without_code
    assert "hatchling" in without_hatchling
    assert int(modules.split()[0]) > 30
    # In the versions that are locked.
    locked = re.findall(r"^([\w.-]+==\S+)", (CHECKOUT / "requirements/controller.txt").read_text(), re.M)
    (found / "constraints.txt").write_text("\n".join(locked) + "\n")
    pip = ["install", "--quiet", "--target", str(found / "packages"), "-r", str(found / "pip.txt")]
    done = controller.run("pip", *pip, "--constraint", str(found / "constraints.txt"))
    assert done.returncode == 0, done.stderr
    assert run(found / "packages") == [modules]
