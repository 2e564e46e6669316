"""Real containerds: those of the lab's node images, and those that CONTAINERD_BIN_DIR names. Each in a container."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from node_device_plugin.runtime import configuration
from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig
from node_device_plugin.runtime.configuration.containerd_imports import Imports

CHECKOUT = Path(__file__).parents[2]
ENGINE = CHECKOUT / "lab/roles/lab_node/files/engine"
RELEASES = ("bookworm", "trixie", "forky")
CONFIG = "/etc/containerd/config.toml"


#: From this version on containerd has no enable_cdi: CDI is always on.
ALWAYS_ON = (2, 4, 0)


def bin_dirs() -> list[str]:
    """The directories of more containerds, as in PATH: with a colon between two of them."""
    return [path for path in os.environ.get("CONTAINERD_BIN_DIR", "").split(os.pathsep) if path]


class Containerd:
    """One containerd. where: a Debian release, or a directory with the programs."""

    def __init__(self, where: str) -> None:
        release, program, volumes = where, "/usr/bin/containerd", []
        if where not in RELEASES:
            if not (Path(where) / "containerd").is_file():
                raise FileNotFoundError(f"CONTAINERD_BIN_DIR: {where} contains no program containerd")
            # The newest C library runs whatever an older one does.
            release, program = RELEASES[-1], "/opt/containerd/containerd"
            volumes = ["--volume", f"{Path(where).resolve()}:/opt/containerd:ro"]
        image = subprocess.run(
            [CHECKOUT / "lab/roles/lab_node/files/node_image.py", release],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.split()[0]
        seen = "/collections/ansible_collections/nodedevices/kubernetes"
        for directory in ("plugins/module_utils", "plugin/node_device_plugin"):
            volumes += ["--volume", f"{CHECKOUT / directory}:{seen}/{directory}:ro"]
        volumes += [
            "--volume",
            f"{Path(__file__).parent}:/tests:ro",
        ]
        run = "run --rm --interactive --network none --cgroupns private --env PYTHONDONTWRITEBYTECODE=1"
        self._process = subprocess.Popen(
            [ENGINE, *run.split(), *volumes, "--entrypoint", "python3", image, "/tests/containerd_node.py", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.default = ""
        self.place({})
        self.version = self.facts()["version"]
        self.default = self.facts()["config"]["effective"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the container with containerd has ended"
        return json.loads(answer)

    def place(self, files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> None:
        """Make these the node's files."""
        encoded = {path: base64.b64encode(content).decode() for path, content in files.items()}
        self._ask(files=encoded, links=links or {})

    def facts(self, *arguments: str) -> Any:
        """What node_preflight reads where the daemon was started with these arguments."""
        return self._ask(facts=["containerd", *arguments])

    def start(self, *arguments: str) -> Any:
        """Whether a daemon that is started with these arguments serves CRI, and what it says if not."""
        return self._ask(start=list(arguments))

    def adapter(self, *arguments: str) -> configuration.Adapter:
        """What plans for a daemon that was started with these arguments. Its containerd reads the copies."""
        runtime = {"socket": "/run/containerd/containerd.sock", "name": "containerd", "executable": "containerd"}
        facts = self.facts(*arguments)
        facts["config"]["imports"] = Imports(*facts["config"]["imports"])
        adapter: Any = configuration.of({**runtime, **facts})

        def effective_with(text: str, drop_in: str | None = None) -> str:
            answer = self._ask(check=text, drop_in=drop_in, path=adapter.config["path"])
            if "refused" in answer:
                raise UnsupportedConfig(answer["refused"])
            effective: str = answer["effective"]
            return effective

        adapter.effective_with = effective_with
        return adapter
