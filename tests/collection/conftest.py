"""One controller for all tests of the collections."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from installed import CHECKOUT, Controller

RESOURCES = """
node_devices_resources:
  - name: github.com.ihcsim/crand
    container_edits: {env: [CDI_PROVIDER=github.com.ihcsim/crand]}
    devices:
      - {id: crand0, nodes: [{path: /dev/crand0, host_path: /dev/random, mode: "0660"}]}
node_devices_resources_more:
  - {name: example.com/none}
"""


@pytest.fixture(scope="session")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Controller:
    folder = tmp_path_factory.mktemp("controller")
    version = re.search(r"^ansible-core==(\S+)", (CHECKOUT / "requirements/controller.txt").read_text(), re.M)
    assert version
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    made = Controller(folder)
    done = made.run("pip", "install", "--quiet", f"ansible-core=={version.group(1)}")
    assert done.returncode == 0, done.stderr
    sources = [str(CHECKOUT), str(CHECKOUT / "lab")]
    built = made.run("ansible-galaxy", "collection", "build", *sources, "--output-path", str(folder))
    assert built.returncode == 0, built.stderr
    archives = [str(path) for path in folder.glob("nodedevices-*.tar.gz")]
    assert len(archives) == 2
    installed = made.run("ansible-galaxy", "collection", "install", "--offline", *archives, "-p", "collections")
    assert installed.returncode == 0, installed.stderr
    (folder / "inventory.yml").write_text(
        yaml.safe_dump(
            {"node_devices": {"hosts": {"node1": {"ansible_connection": "local"}}, "vars": yaml.safe_load(RESOURCES)}}
        )
    )
    return made
