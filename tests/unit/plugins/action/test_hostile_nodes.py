"""Every action against nodes that answer facts, expressions, forged tags and wrong types, by Ansible itself.

One play runs all actions on all nodes. What another node and the controller have does not change.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import hostile_nodes
import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
ACTIONS = sorted(path.stem for path in (CHECKOUT / "plugins" / "action").glob("*.py"))
COMMAND = "{{ node }}/node-device-plugin"
RESOURCE = {"name": "a.example/dev", "devices": [{"id": "a", "nodes": [{"path": "/dev/null"}]}]}
SCANNED = {"name": "a.example/scanned", "discover": {"paths": ["/x"]}}
DECLARED = "{{ declared }}"
#: Each action with arguments with which it asks the node. A new action needs an entry.
ON_NODE = {
    "cdi_runtime": {"command": COMMAND},
    "cdi_specs": {"state": "present"},
    "device_holders": {"command": COMMAND, "policy": "refuse"},
    "host_devices": {"nodes": [{"path": "/dev/crand0", "type": "c", "major": 1, "minor": 8}]},
    "managed_files": {"owner": "a", "files": [{"path": "/nowhere/a", "content": "a"}]},
    "node_command": {"argv": ["a"]},
    "node_facts": {},
    "node_lock": {},
    "node_preflight": {"requires": ["python"]},
    "node_scan": {},
    "node_status": {"command": COMMAND},
    "node_tools": {"cache": "{{ node }}/cache"},
    "service": {"name": "a.service"},
    "verification": {"tool": COMMAND, "record": "/nowhere/a"},
}
#: These contact only the API server, or nothing. They get as arguments what other actions registered.
ON_CONTROLLER = {
    "daemonset": {"state": "deployed", "pending": []},
    "declaration": {},
    "device_classes": {"state": "present"},
    "extended_resources": {"declaration": DECLARED},
    "fleet_report": {"hosts": "{{ ansible_play_hosts_all }}", "directory": "{{ node }}/report"},
    "node_drain": {"state": "drained"},
    "node_migration": {"state": "planned"},
    "node_names": {},
    "printed": {"text": "a"},
}
#: Actions that report a node's wrong answer instead of failing.
REPORTING = ("node_status",)
# The playbooks' names of results that one task or filter reads of all hosts.
_REGISTERED = {
    "node_scan": "node_devices_scan",
    "node_status": "node_devices_status",
    "verification": "verification_report",
}
_TABLES = ("table_scan_groups", "table_verification_table")
# Variables that an answer tries to set.
DUMPED = ["canary", "device_plugin_deployment", "ansible_connection", "ansible_python_interpreter", "group_names"]


def _tables():
    """Tasks that print what all nodes said, as the playbooks do."""
    for table in _TABLES:
        value = "{{ ansible_play_hosts_all | nodedevices.kubernetes.%s(hostvars) }}" % table.removeprefix("table_")
        yield {"ansible.builtin.debug": {"msg": value}, "register": table, "run_once": True}


class Played:
    """The play's outcome. hosts: the dumped variables of each host, and all results as ``result_<action>``."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.canary = directory / "evaluated"
        self.nodes = directory / "nodes"
        self.nodes.mkdir()
        self.kinds = hostile_nodes.make(self.nodes, self.canary)
        here = {"ansible_connection": "local", "canary": "untouched", "device_plugin_deployment": {"image": "declared"}}
        hosts = {
            kind: {
                **here,
                "node": str(self.nodes / kind),
                "ansible_python_interpreter": str(self.nodes / kind / "python"),
            }
            for kind in self.kinds
        }
        hosts["other"] = {**here, "ansible_python_interpreter": sys.executable}
        # An answer of run_once would go to all hosts.
        tasks = [
            {
                f"nodedevices.kubernetes.{name}": arguments,
                "register": _REGISTERED.get(name, f"result_{name}"),
                "ignore_errors": True,
                "ignore_unreachable": True,
            }
            for name, arguments in {**ON_NODE, **ON_CONTROLLER}.items()
        ]
        names = [_REGISTERED.get(name, f"result_{name}") for name in (*ON_NODE, *ON_CONTROLLER)]
        value = "{{ dict(names | zip(names | map('extract', vars_of))) | to_json }}"
        dump = {
            "ansible.builtin.copy": {"dest": str(directory) + "/dumped-{{ item }}.json", "content": value},
            "loop": [*self.kinds, "other"],
            "vars": {
                "names": "{{ %s | intersect(vars_of.keys() | list) }}"
                % [*DUMPED, *names, *_TABLES, "ansible_facts", "groups"],
                "vars_of": "{{ hostvars[item] }}",
            },
        }
        plays = [
            {
                "hosts": "all:!other:!localhost",
                "gather_facts": False,
                "vars": {"node_devices_resources": [RESOURCE], "declared": {**self.declared()}},
                "tasks": [*tasks, *_tables()],
            },
            {"hosts": "other", "gather_facts": False, "tasks": [dump]},
        ]
        (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        (directory / "play.yml").write_text(yaml.safe_dump(plays))
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".ansible" / "collections"),
            "ANSIBLE_LOCAL_TEMP": str(directory / "local"),
            "ANSIBLE_REMOTE_TMP": str(directory / "remote"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_FORKS": "8",
            "ANSIBLE_SHOW_CUSTOM_STATS": "1",
            "ANSIBLE_NOCOLOR": "1",
        }
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        done = subprocess.run(
            [program, "-i", "hosts.yml", "play.yml", "-v"],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.said = done.stdout + done.stderr
        self.hosts = {
            host: json.loads((directory / f"dumped-{host}.json").read_text()) for host in (*self.kinds, "other")
        }

    @staticmethod
    def declared():
        return {
            "resources": [RESOURCE],
            "configuration": {"resources": [RESOURCE]},
            "capacities": {},
            "kubelet_device_plugin_dir": "/var/lib/kubelet/device-plugins",
        }

    def result(self, kind, action):
        """What an action registered, without what the node's name or directory is part of."""
        text = json.dumps(self.hosts[kind][_REGISTERED.get(action, f"result_{action}")])
        text = text.replace(str(self.nodes / kind), "NODE")
        return json.loads(text if action == "fleet_report" else text.replace(f'"{kind}', '"HOST'))


@pytest.fixture(scope="module", name="played")
def _played(tmp_path_factory):
    return Played(tmp_path_factory.mktemp("nodes"))


def test_every_action_is_in_this_test():
    assert sorted((*ON_NODE, *ON_CONTROLLER)) == ACTIONS


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_has_the_common_base(name):
    module = __import__(
        f"ansible_collections.nodedevices.kubernetes.plugins.action.{name}", fromlist=["ActionModule"]
    ).ActionModule
    assert issubclass(module, NodeAction)
    assert "act" in vars(module)
    # The base class makes every result safe.
    assert "run" not in vars(module)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", ["facts", "keys"])
def test_what_ansible_obeys_does_not_reach_a_result(played, action, kind):
    result, expected = (played.result(each, action) for each in (kind, "honest"))
    for each in (result, expected):
        each.pop("warnings", None)
    assert result == expected
    assert "hostile" not in json.dumps(result)


@pytest.mark.parametrize("action", sorted(ON_NODE))
@pytest.mark.parametrize("kind", ["tags", "objects", "types", "deep", "endless"])
def test_an_answer_of_a_wrong_form_is_one_clear_error(played, action, kind):
    result = played.result(kind, action)
    if action in REPORTING:
        assert "answer of " in json.dumps(result)
    else:
        assert result["failed"] is True
        assert "answer of module" in result["msg"] or "answer of node-device-plugin" in result["msg"]
        assert len(result["msg"]) < 1000


@pytest.mark.parametrize("action", sorted(ON_NODE))
def test_an_honest_answer_is_used(played, action):
    assert not played.result("honest", action).get("failed"), played.result("honest", action)


def test_no_expression_of_a_node_is_evaluated(played):
    assert not played.canary.exists()
    assert "lookup(" in json.dumps(played.hosts["templates"])


def test_the_other_node_and_the_controller_stay_untouched(played):
    for host, found in played.hosts.items():
        assert found["canary"] == "untouched", host
        assert found["device_plugin_deployment"] == {"image": "declared"}
        assert found["ansible_connection"] == "local"
        assert "hostile" not in found["ansible_python_interpreter"]
        assert found["group_names"] == ["ungrouped"]
    assert set(played.hosts["other"]["groups"]) == {"all", "ungrouped"}
    assert played.hosts["other"]["ansible_facts"] == {}
    assert "CUSTOM STATS" not in played.said


def test_facts_are_below_ansible_facts_of_their_host_alone(played):
    expected = {"hostname": "its-name", "interfaces": ["lo", "eth0"], "eth0": {"device": "eth0"}}
    assert played.hosts["honest"]["ansible_facts"] == expected
    assert played.hosts["facts"]["ansible_facts"] == expected
    assert played.hosts["types"]["ansible_facts"] == {}


def test_the_tables_of_all_nodes_have_every_node(played):
    report, scans, table = (played.hosts["honest"][name] for name in ("result_fleet_report", *_TABLES))
    for text in (report["table"], scans["msg"], table["msg"]):
        for kind in played.kinds:
            assert kind in text
    assert report["summary"]["nodes"] == {"wrong": len(played.kinds)}
    # The expression is in comments only.
    assert yaml.safe_load(scans["msg"].split("\n\n\n")[0]) == {"node_devices_resources": [SCANNED]}
    pasted = [line for line in scans["msg"].splitlines() if "lookup(" in line]
    assert pasted
    assert all(line.lstrip().startswith("# ") for line in pasted)


def test_a_terminal_gets_no_control_character(played):
    assert not [letter for letter in played.said if ord(letter) < 0x20 and letter != "\n"]
