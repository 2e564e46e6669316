# SPDX-License-Identifier: Apache-2.0
"""A node that exists only in its answers, for bench/controller.py: no module runs, so only the controller works."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pathlib
import re
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = r"""
name: simulated_node
short_description: Answers as a provisioned node without running anything
description:
  - The environment variable E(NODE_DEVICES_SIMULATED) names a directory with the runtime's configuration as
    C(config.toml). There the connection also keeps what a play has written to each node.
  - An answer has the keys of this release's modules and of earlier releases' modules. An action keeps only the keys
    that it knows.
extends_documentation_fragment: connection_pipelining
options:
  host:
    description: The node's name.
    type: str
    vars:
      - name: inventory_hostname
"""

#: The commands for which playbooks ask.
COMMANDS = ["/opt/node-devices/current/bin/node-device-plugin", "/usr/local/bin/node-device-plugin"]
CDI_DIRECTORIES = ["/etc/cdi", "/var/run/cdi"]
CDI = {"enabled": True, "always_on": False, "spec_dirs": CDI_DIRECTORIES}
_CALL = b"\n    _ansiballz_main(\n"
_MARK = re.compile(r"begin-([0-9a-f]{16})")
_UNCHANGED: dict[str, Any] = {"changed": False, "written": [], "contents": [], "removed": [], "kept": [], "diff": []}
_OF_TOOLS = {"environment": "0.1.0-0123456789ab", "incomplete": False, "was": None, "restarted": False, "seconds": 0.0}
_OF_SERVICE = {"changed": False, "actions": [], "invocation_id": "0123456789abcdef"}
#: What each module answers in check mode if it would change nothing.
ANSWERS: dict[str, dict[str, Any]] = {
    "cdi_runtime": {"changed": False, "msg": "CDI is effective"},
    "cdi_specs": {**_UNCHANGED, "files": [], "devices": [], "in_use": [], "crashing": [], "broken": []},
    "host_devices": {**_UNCHANGED, "actions": [], "leftovers": False},
    "managed_files": _UNCHANGED,
    "node_lock": {"changed": False},
    "node_tools": {**_UNCHANGED, **_OF_TOOLS},
    "service": _OF_SERVICE,
}


class Connection(ConnectionBase):
    """Answers modules and the plugin's command."""

    transport = "simulated_node"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Return exit code, output and errors. Raises AnsibleError for what the node cannot answer."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        mark = _MARK.search(cmd)
        if mark and in_data and " verify " in cmd:
            return 0, _framed(mark[1], _verified(json.loads(in_data))), b""
        call = in_data.rfind(_CALL) if in_data else -1
        if not in_data or call < 0:
            raise AnsibleError(f"the simulated node cannot answer: {cmd[:200]}")
        given = _given(in_data[call + len(_CALL) :].decode())
        answer = self._answer(given["ansible_module"].rpartition(".")[2], json.loads(given["params"]))
        return 0, json.dumps(answer).encode(), b""

    def put_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleError("the simulated node takes no file")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleError("the simulated node has no file")

    def close(self) -> None:
        self._connected = False

    def _answer(self, module: str, params: dict[str, Any]) -> dict[str, Any]:
        node = _Node(pathlib.Path(os.environ["NODE_DEVICES_SIMULATED"]), str(self.get_option("host")))
        arguments = params["ANSIBLE_MODULE_ARGS"]
        if module == "node_preflight":
            return node.facts(arguments)
        if module == "managed_files":
            return node.write(arguments)
        if module == "node_tools" and arguments.get("name"):
            return node.install(arguments)
        return ANSWERS[module]


class _Node:
    """One node's answers. Files that a play has written are in the ledger of later answers."""

    def __init__(self, directory: pathlib.Path, host: str) -> None:
        self._config = (directory / "config.toml").read_text()
        self._written = directory / f"{host}.json"
        has_written = self._written.exists()
        kept = json.loads(self._written.read_text()) if has_written else {"files": {}, "environment": _OF_TOOLS}
        self._files: dict[str, Any] = kept["files"]
        self._environment: dict[str, Any] = kept["environment"]

    def _keep(self) -> None:
        self._written.write_text(json.dumps({"files": self._files, "environment": self._environment}))

    def write(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer as module managed_files, and keep the files."""
        for file in arguments["files"]:
            self._files[file["path"]] = {**file, "owner": arguments["owner"]}
        self._keep()
        paths = [file["path"] for file in arguments["files"]]
        return {**_UNCHANGED, "changed": True, "written": paths, "contents": paths}

    def install(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer as an earlier release's module node_tools, for which the controller chose the environment."""
        self._environment = {**_OF_TOOLS, "environment": arguments["name"]}
        self._keep()
        return {**_UNCHANGED, **self._environment, "changed": True}

    def facts(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer as module node_preflight."""
        asked, more = arguments.get("converge") or {}, {"node_tools": self._environment}
        self._take(asked)
        is_earlier = "foresee" in arguments
        specs = [_cdi_file(path, file) for path, file in self._files.items() if file["owner"] == "cdi_specs"]
        return {
            "changed": False,
            "python": {"version": [3, 11, 2], "executable": "/usr/bin/python3", "obstacle": None, "hidden_root": None},
            "uid": 0,
            "machine": "x86_64",
            "libc": "glibc 2.36",
            "init": "systemd",
            "runtime": self._runtime(),
            "running": {"command": arguments.get("ask"), "cdi": CDI},
            "converged": {name: [_converged(name)] * len(each) for name, each in asked.items()},
            "foreseen": {
                name: {"arguments": each, "answer": {**ANSWERS[name], **more.get(name, {})}}
                for name, each in arguments.get("foresee", {}).items()
            },
            "kubelet": {
                "pid": 700,
                "unit": "kubelet.service",
                "version": "1.36.2",
                "root_dir": "/var/lib/kubelet",
                "kubeconfig": None,
                "max_pods": 110,
                "static_pod_path": "/etc/kubernetes/manifests",
                "cri_socket": "/run/containerd/containerd.sock",
            },
            "kubelet_problem": None,
            "identity": {"name": None, "machine_id": None, "system_uuid": None},
            "missing_devices": [],
            "device_links": {},
            "other_than_devices": {},
            "missing_host_paths": [],
            "accounts": {"users": {}, "groups": {}},
            "commands": COMMANDS,
            "device_plugins": {"instance": None, "registered": [], "others": [], "drivers": []},
            "cdi_directories": CDI_DIRECTORIES,
            "cdi_files": specs if is_earlier else [spec["path"] for spec in specs],
            "spec_devices": [device for spec in specs for device in spec["devices"]],
            "ledger": self._ledger(is_earlier),
            "settled": sorted({file["owner"] for file in self._files.values()}),
            "transaction_left": False,
            "claims_prepared": [],
            "locked_by": None,
        }

    def _ledger(self, is_earlier: bool) -> Any:
        """Return the paths in the ledger. is_earlier: whether an earlier release asks, which gets the entries, too."""
        return {path: _entry(file) for path, file in self._files.items()} if is_earlier else sorted(self._files)

    def _take(self, asked: dict[str, Any]) -> None:
        """Take what the play wants as the files that a run before has written."""
        for each in asked.get("managed_files", ()):
            self._files.update({file["path"]: {**file, "owner": each["owner"]} for file in each["files"]})
        for each in asked.get("cdi_specs", ()):
            for resource in each.get("configuration", {}).get("resources", ()):
                name = "node-device-plugin_%s.json" % resource["name"].replace("/", "_")
                spec = {"kind": resource["name"], "devices": [{"name": each["id"]} for each in resource["devices"]]}
                self._files["/etc/cdi/" + name] = {"owner": "cdi_specs", "content": json.dumps(spec)}

    def _runtime(self) -> dict[str, Any]:
        path = "/etc/containerd/config.toml"
        config = {"path": path, "real_path": path, "exists": True, "content": self._config, "effective": self._config}
        return {
            "socket": "/run/containerd/containerd.sock",
            "pid": 600,
            "name": "containerd",
            "executable": "/usr/bin/containerd",
            "version": "1.7.24",
            "installed_version": "1.7.24",
            "unit": "containerd.service",
            "kill_mode": "process",
            "config": config,
            "obstacles": [],
        }


def _given(call: str) -> dict[str, Any]:
    """Return the arguments of the payload's last call. Each is on its own line, as a literal."""
    wanted = ("ansible_module=", "params=")
    lines = (line.rstrip(",").partition("=") for line in call.splitlines() if line.startswith(wanted))
    return {name: ast.literal_eval(value) for name, _, value in lines}


def _converged(name: str) -> dict[str, Any]:
    return {"answer": {"warnings": [], **ANSWERS[name]}, "has_unshown_work": False}


def _digest(file: dict[str, Any]) -> str:
    """Return a hash of a file's text, or of the data from which the node makes the text."""
    return hashlib.sha256((file.get("content") or json.dumps(file)).encode()).hexdigest()


def _entry(file: dict[str, Any]) -> dict[str, Any]:
    """Return the ledger's entry of a file or a directory."""
    kind, private = file.get("type", "file"), file.get("private")
    if kind == "directory":
        return {"kind": kind, "owners": [file["owner"]], "mode": 0o700 if private else 0o755}
    mode = 0o700 if private else 0o644
    return {"kind": kind, "owner": file["owner"], "mode": mode, "sha256": _digest(file), "before": None}


def _cdi_file(path: str, file: dict[str, Any]) -> dict[str, Any]:
    directory, _, name = path.rpartition("/")
    spec = json.loads(file["content"])
    devices = [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
    found = {"path": path, "directory": directory, "name": name, "devices": devices}
    return {**found, "sha256": _digest(file), "content": file["content"]}


def _verified(configuration: dict[str, Any]) -> dict[str, Any]:
    """Answer as the command `verify`, which an earlier run's proofs satisfy."""
    rows = []
    for resource in configuration["resources"]:
        count = len(resource["devices"]) * resource.get("replicas", 1)
        rows.append({"resource": resource["name"], "capacity": count, "healthy": count, "seen": []})
        rows[-1].update(state="proven before", detail="", shares=0, absent=[])
    found = {"runtime": "containerd 1.7.24", "kubelet": "1.36.2", "resources": rows, "problems": [], "image": None}
    return {**found, "proven": {}, "proven_before": {}, "warnings": []}


def _framed(mark: str, answer: dict[str, Any]) -> bytes:
    """Return an answer as plugin_utils/framed.py finds it."""
    return f"\nbegin-{mark}\n{json.dumps(answer)}\ncode-{mark} 0\n\n\n\nend-{mark}\n".encode()
