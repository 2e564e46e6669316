"""What status.yml compares: the files that site.yml would write, and the ledger of what it wrote."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import cdi, configuration_file
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, role_files, spec_templates
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import drift

CHECKOUT = pathlib.Path(__file__).resolve().parents[5]
CAMERA = {"name": "a.io/camera", "devices": [{"id": "a", "nodes": [{"path": "/dev/null"}]}]}
SPEC = "/etc/cdi/node-device-plugin_a.io_camera.json"
UNIT = "/etc/systemd/system/node-device-plugin.service"
MODULES = "/etc/modules-load.d/node-devices.conf"
NODE = {"path": "/dev/made", "type": "c", "major": 1, "minor": 3}
VARIABLES = {"host_devices_modules": [{"name": "cam"}], "host_devices_nodes": [NODE], "inventory_dir": "/none"}


@pytest.fixture(autouse=True)
def _lookups(monkeypatch):
    """Without a running Ansible, plugins have no collections' names."""
    by_name = types.SimpleNamespace(get=lambda name, **given: lookup_loader.get(name.rpartition(".")[2], **given))
    monkeypatch.setattr(spec_templates, "lookup_loader", by_name)


def read(*resources):
    return declaration.read({"node_devices_resources": list(resources)}, lambda value: value).as_data()


def action(variables):
    loader = DataLoader()
    return types.SimpleNamespace(_loader=loader, _templar=Templar(loader=loader, variables=variables))


def wanted(declared, environment="1.0.0-abc", **variables):
    known = {**VARIABLES, **variables}
    # The node's answer of module cdi_specs.
    specs = {f"/etc/cdi/{name}": digest(spec) for name, spec in declared["cdi_specs"].items()}
    facts = {"converged": {"cdi_specs": [{"answer": {"files": specs}}]}}
    return drift.wanted(action(known), known, declared, facts, environment)


def digest(spec):
    return hashlib.sha256(cdi.serialise(spec).encode()).hexdigest()


def as_written(wanted):
    """The facts of a node on which site.yml has just run."""
    ledger = {
        path: {"owner": owner, "kind": "file", "sha256": digest}
        for owner, files in wanted.files.items()
        for path, digest in files.items()
    }
    for path in wanted.paths:
        ledger[path] = {"owner": "host_devices nodes", "kind": "node"}
    ledger["/opt/node-devices/current"] = {
        "owner": "node_tools /opt/node-devices",
        "kind": "link",
        "target": "versions/1.0.0-abc",
    }
    return {"ledger": ledger, "settled": sorted(wanted.files), "cdi_files": []}


def test_a_node_as_site_yml_leaves_it():
    whole = wanted(read(CAMERA))
    assert sorted(path for files in whole.files.values() for path in files) == sorted(
        [role_files.CONFIGURATION, UNIT, SPEC, MODULES]
    )
    assert list(drift.found(as_written(whole), whole)) == []


def changed(path, **entry):
    def change(facts):
        facts["ledger"][path].update(entry)

    return change


def gone(path):
    return lambda facts: facts["ledger"].pop(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed(role_files.CONFIGURATION, sha256="x"), f"{role_files.CONFIGURATION}: not as declared: run site.yml"),
        (changed(UNIT, sha256="x"), f"{UNIT}: not as declared: run site.yml"),
        (changed(SPEC, sha256="x"), f"{SPEC}: not as declared: run site.yml"),
        (gone(SPEC), f"{SPEC}: not as declared: run site.yml"),
        (gone(MODULES), f"{MODULES}: not as declared: run site.yml"),
        (gone("/dev/made"), "/dev/made: role host_devices has not created this device node: run site.yml"),
        (
            lambda facts: facts["settled"].remove("device_plugin"),
            f"{role_files.CONFIGURATION} or {UNIT}: changed or removed on the node since the last run: run site.yml",
        ),
        (
            changed("/opt/node-devices/current", target="versions/0.9.0-def"),
            "version 0.9.0-def is installed, but this collection installs 1.0.0-abc: run site.yml",
        ),
    ],
)
def test_each_difference_is_one_line(change, says):
    whole = wanted(read(CAMERA))
    facts = as_written(whole)
    change(facts)
    assert list(drift.found(facts, whole)) == [says]


ROOT = "/opt/node-devices"
KEPT = {"owner": f"node_tools {ROOT}", "kind": "tree", "number": 2}


@pytest.mark.parametrize(
    ("more", "problem", "note"),
    [
        # After a failed upgrade, site.yml would refuse the node.
        (
            ["refused.json"],
            f"version 0.9.0-def stays in use, because an upgrade failed its health check on this node ({ROOT}/"
            "refused.json has the reason): fix the cause, then run site.yml -e node_tools_retry=true",
            "",
        ),
        # After rollback.yml.
        (
            ["versions/1.0.0-abc"],
            None,
            "version 0.9.0-def is in use, and 1.0.0-abc is installed beside it, as after rollback.yml: site.yml "
            "upgrades this node again",
        ),
        # After an upgrade by a newer collection.
        (
            ["versions/1.0.0-abc", "previous"],
            "version 0.9.0-def is installed, but this collection installs 1.0.0-abc: run site.yml",
            "",
        ),
    ],
)
def test_another_version_after_a_failed_upgrade_or_a_rollback(more, problem, note):
    whole = wanted(read(CAMERA))
    facts = as_written(whole)
    assert drift.rolled_back(facts, whole) == ""
    changed(f"{ROOT}/current", target="versions/0.9.0-def")(facts)
    facts["ledger"].update({f"{ROOT}/{name}": KEPT for name in more})
    assert list(drift.found(facts, whole)) == ([problem] if problem else [])
    assert drift.rolled_back(facts, whole) == note


def test_an_edited_file_is_said_beside_an_edited_declaration():
    """Of two CDI specs, the one that is as written is not named."""
    lamp = {"name": "a.io/lamp", "devices": [{"id": "l", "nodes": [{"path": "/dev/zero"}]}]}
    facts = as_written(wanted(read(CAMERA, lamp)))
    facts["settled"] = []
    spec = read(lamp)["cdi_specs"]["node-device-plugin_a.io_lamp.json"]
    facts["cdi_files"] = [{"path": "/etc/cdi/node-device-plugin_a.io_lamp.json", "sha256": digest(spec)}]
    changed = "changed or removed on the node since the last run: run site.yml"
    assert list(drift.found(facts, wanted(read({**CAMERA, "env": {"A": "b"}}, lamp)))) == [
        f"{SPEC}: {changed}",
        f"{role_files.CONFIGURATION}: not as declared: run site.yml",
        f"{role_files.CONFIGURATION} or {UNIT}: {changed}",
        f"{MODULES}: {changed}",
    ]


def test_an_edited_declaration_and_a_file_that_is_no_longer_declared():
    facts = as_written(wanted(read(CAMERA)))
    now = wanted(read({**CAMERA, "env": {"A": "b"}}), host_devices_modules=[])
    assert list(drift.found(facts, now)) == [
        f"{role_files.CONFIGURATION}: not as declared: run site.yml",
        f"{MODULES}: not as declared: run site.yml",
    ]


@pytest.mark.parametrize("looked", [{}, {"cdi_specs": [None]}, {"cdi_specs": [{"answer": {"problems": ["x"]}}]}])
def test_specs_that_the_node_did_not_judge_are_not_compared(looked):
    known = {**VARIABLES}
    whole = drift.wanted(action(known), known, read(CAMERA), {"converged": looked}, "")
    assert set(whole.files) == {"host_devices"}


def test_a_daemonset_has_neither_a_unit_nor_a_version_on_its_node():
    whole = wanted(read(CAMERA), environment="")
    assert set(whole.files) == {"cdi_specs", "host_devices"}
    assert list(drift.found(as_written(whole), whole)) == []


COPY = """
import json
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        files = {each["path"]: each.get("configuration", each.get("content")) for each in self._task.args["files"]}
        with open(task_vars["files_of_role"], "w") as file:
            json.dump(files, file)
        return {"changed": False}
"""


@pytest.mark.parametrize("root", [None, "/srv/devices"])
def test_the_files_are_those_of_the_role(tmp_path, root):
    """The role itself, by Ansible: only the action that writes its files is another."""
    collection = tmp_path / "collections" / "ansible_collections" / "nodedevices" / "kubernetes"
    (collection / "plugins").mkdir(parents=True)
    plugins = CHECKOUT / "plugins"
    shared = [plugins / "filter", plugins / "lookup", *plugins.glob("*_utils")]
    for path in [CHECKOUT / "plugin", CHECKOUT / "roles", *shared]:
        (collection / path.relative_to(CHECKOUT)).symlink_to(path)
    for kind in ("action", "modules"):
        (collection / "plugins" / kind).mkdir()
        for path in (CHECKOUT / "plugins" / kind).glob("*.py"):
            if path.name != "managed_files.py":
                (collection / path.relative_to(CHECKOUT)).symlink_to(path)
        (collection / "plugins" / kind / "managed_files.py").write_text(COPY)
    declared = read(
        {**CAMERA, "env": {"NAME": "ä"}, "health": {"open": True}},
        {"name": "b.io/lamp", "discover": {"paths": ["/dev/x*"]}},
    )
    known = {"device_plugin_node": {"declaration": declared}, "files_of_role": str(tmp_path / "files")}
    known.update({"node_tools_root": root} if root else {})
    include = {
        "name": "nodedevices.kubernetes.device_plugin",
        "tasks_from": "service_files.yml",
        "rolespec_validate": False,
    }
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": ["known.json"],
        "tasks": [{"ansible.builtin.include_role": include}],
    }
    (tmp_path / "known.json").write_text(json.dumps(known))
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
    }
    done = subprocess.run(
        [program, "play.yml"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    variables = {**VARIABLES, **known}
    files = json.loads((tmp_path / "files").read_text())
    files[role_files.CONFIGURATION] = configuration_file.text(files[role_files.CONFIGURATION])
    ours = role_files.service(action(variables), variables, declared)
    assert ours == {path: content for path, content in files.items() if content is not None}
    assert ("ExecStart=%s/current/bin" % (root or "/opt/node-devices")) in ours[UNIT]
