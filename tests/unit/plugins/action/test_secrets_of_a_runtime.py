"""No secret of a runtime's configuration reaches the controller, by Ansible itself with all that it can print.

The nodes are this machine with a containerd of the test: a script that prints the file it is given. All runs are in
check mode, which writes nothing.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import sha256
from real_processes import as_root

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
SECRET = "CANARY"  # noqa: S105
# Three letters are four of base64, wherever in a text the secret begins.
ENCODED = [
    base64.b64encode((before + SECRET + "--").encode())[begin:8].decode()
    for before, begin in (("", 0), ("-", 2), ("--", 3))
]
OFF = f'''version = 2
imports = ["conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = false # {SECRET}
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins."io.containerd.grpc.v1.cri".registry.configs."registry.example".auth]
    username = "{SECRET}"
    password = "{SECRET}"
  [plugins."io.containerd.grpc.v1.cri".registry.headers]
    Authorization = ["Basic {SECRET}"]
'''
ON = OFF.replace("enable_cdi = false", "enable_cdi = true")
DROP_IN = f'[stream_processors."x"]\n  env = ["KEY={SECRET}"]\n'
#: The text of each node's file, and what its containerd does with a file.
NODES = {
    "off": (OFF, 'cat "$2"'),
    "ours": (ON, 'cat "$2"'),
    "broken": (f"{OFF}= {SECRET}\n", 'cat "$2" >&2; exit 1'),
    "refused": (OFF, 'case $2 in */config.toml) cat "$2" ;; *) cat "$2" >&2; exit 1 ;; esac'),
}
# Python imports this file at its start, and the module's process gets the test's containerd and ledger.
SITE = """
import importlib.machinery, os, sys, types

NODE = os.environ["TEST_NODE"]
UTILS = "ansible_collections.nodedevices.kubernetes.plugins.module_utils."


def containerd(path):
    from ansible_collections.nodedevices.kubernetes.plugins.module_utils import runtime_facts

    program, config = NODE + "/containerd", NODE + "/config.toml"
    run = lambda *arguments, name: runtime_facts.answer_of([program, *arguments])
    process = types.SimpleNamespace(
        pid=os.getpid(), arguments=["containerd", "--config", config], executable=program, replaced=False,
        unit="containerd.service", working_directory="/", environment={}, run=run,
    )
    return process, None


def patched(module):
    if module.__name__ == UTILS + "runtime_facts":
        module.listener = containerd
    if module.__name__ == UTILS + "ledger":
        module.Ledger.__init__.__defaults__ = (NODE + "/ledger",)
    if module.__name__ == UTILS + "converge.cdi_runtime":
        module.PLACES = type(module.PLACES)(NODE + "/ledger")


class Finder:
    def find_spec(self, name, path=None, target=None):
        if not name.startswith(UTILS) or name.rpartition(".")[2] not in ("runtime_facts", "ledger", "cdi_runtime"):
            return None
        spec = next(filter(None, (each.find_spec(name, path) for each in sys.meta_path if each is not self)))
        execute = spec.loader.exec_module

        class Loader:
            create_module = spec.loader.create_module

            def exec_module(self, module):
                execute(module)
                patched(module)

        spec.loader = Loader()
        return spec


sys.meta_path.insert(0, Finder())
"""


def make(directory, name):
    """Make a node's files. Returns its variables."""
    text, does = NODES[name]
    node = directory / name
    (node / "conf.d").mkdir(parents=True)
    (node / "ledger").mkdir()
    (node / "site").mkdir()
    config = node / "config.toml"
    config.write_text(text)
    (node / "conf.d" / "a.toml").write_text(DROP_IN)
    (node / "site" / "sitecustomize.py").write_text(SITE)
    version = '[ "$1" != --version ] || { echo containerd 1.7.24; exit; }\n'
    for path, script in (
        ("containerd", f"{version}{does}"),
        (
            "plugin",
            "echo '" + json.dumps({"cdi": {"enabled": False, "spec_dirs": None}, "held": [], "unknown": []}) + "'",
        ),
        ("python", f'exec env TEST_NODE={node} PYTHONPATH={node}/site {sys.executable} "$@"'),
    ):
        (node / path).write_text(f"#!/bin/sh\n{script}\n")
        (node / path).chmod(0o755)
    if name == "ours":
        before = {"kind": "file", "mode": 0o600, "uid": 0, "gid": 0}
        before["content"] = base64.b64encode(OFF.encode()).decode()
        entry = {"kind": "file", "owner": "cdi_runtime", "mode": 0o600, "before": before}
        entries = {str(config): {**entry, "sha256": sha256(text.encode())}}
        (node / "ledger" / "ledger.json").write_text(json.dumps({"format": 1, "entries": entries}))
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": str(node / "python"),
        "command": str(node / "plugin"),
        "node_devices_cri_socket": str(node / "containerd.sock"),
    }


READY = {"init": "systemd", "runtime": {"obstacles": []}}
REGISTERED = ("looked", "again", "present", "absent")
TASKS = [
    {
        "nodedevices.kubernetes.node_preflight": {
            "requires": ["python"],
            "converge": {
                "cdi_runtime": [{"state": state, "command": "{{ command }}"} for state in ("present", "absent")]
            },
        },
        "register": "looked",
        "ignore_errors": True,
    },
    {"nodedevices.kubernetes.node_preflight": {"requires": ["runtime"]}, "register": "again", "ignore_errors": True},
    # The roles of the next tasks find a node without problems, so that their modules are executed.
    {"nodedevices.kubernetes.node_preflight": {}, "register": "seen"},
    {"ansible.builtin.set_fact": {"node_devices_node": f"{{{{ seen | combine({READY}, recursive=True) }}}}"}},
    *(
        {
            "nodedevices.kubernetes.cdi_runtime": {
                "state": state,
                "command": "{{ command }}",
                **more,
            },
            "register": state,
            "ignore_errors": True,
        }
        for state, more in (("present", {"declaration": {"needs_cdi": True}}), ("absent", {}))
    ),
    {
        "ansible.builtin.set_fact": {
            "cacheable": True,
            "all_results": {name: f"{{{{ {name} }}}}" for name in REGISTERED},
        }
    },
    {"ansible.builtin.debug": {"var": "all_results"}},
    {
        "ansible.builtin.copy": {
            "dest": "{{ playbook_dir }}/{{ inventory_hostname }}.json",
            "content": "{{ all_results | to_json }}",
        },
        "check_mode": False,
    },
]


@pytest.fixture(scope="module", name="played")
def _played(tmp_path_factory):
    """The output of a play on all nodes, and the controller's directory with the cached facts and the log."""
    directory = tmp_path_factory.mktemp("secrets")
    controller = directory / "controller"
    controller.mkdir()
    hosts = {name: make(directory / "nodes", name) for name in NODES}
    (controller / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    play = {"name": "Play", "hosts": "all", "gather_facts": False, "tasks": TASKS}
    (controller / "play.yml").write_text(yaml.safe_dump([play]))
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".ansible" / "collections"),
        "ANSIBLE_LOCAL_TEMP": str(controller / "local"),
        "ANSIBLE_REMOTE_TMP": str(directory / "remote"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(controller / "facts"),
        "ANSIBLE_LOG_PATH": str(controller / "log"),
        "ANSIBLE_NOCOLOR": "1",
    }
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "-i", "hosts.yml", "play.yml", "-vvvv", "--check", "--diff"],
        cwd=controller,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr, controller


def results(controller, name):
    """What a host registered."""
    return json.loads((controller / f"{name}.json").read_text())


@as_root
def test_the_nodes_read_their_secrets_and_plan_with_them(played):
    """Otherwise the next test would hold nothing."""
    said, controller = played
    off, ours, broken, refused = (results(controller, name) for name in NODES)
    assert (off["again"]["failed"], off["present"]["changed"], off["absent"]["changed"]) == (False, True, False)
    assert [each["answer"]["changed"] for each in off["looked"]["converged"]["cdi_runtime"]] == [True, False]
    assert "+  enable_cdi = true # (hidden)" in said
    assert ours["absent"]["changed"] is True
    assert "-  enable_cdi = true # (hidden)" in said
    assert "is not valid TOML" in broken["present"]["msg"]
    assert "rejects the new configuration" in refused["present"]["msg"]


@as_root
def test_no_byte_of_a_secret_reaches_the_controller(played):
    """Its output, the registered results, the diff, the cached facts, the log and the temporary files."""
    said, controller = played
    texts = {
        str(path): path.read_bytes().decode("utf-8", "replace") for path in controller.rglob("*") if path.is_file()
    }
    assert {pathlib.Path(path).name for path in texts} >= {
        "log",
        *(path.name for path in (controller / "facts").iterdir()),
    }
    for where, text in {"the output": said, **texts}.items():
        for secret in (SECRET, *ENCODED):
            assert secret not in text, f"{where}: {text[max(0, text.find(secret) - 300) :][:400]}"
