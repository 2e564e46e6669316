#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_tools
short_description: The plugin's virtual environment on a node
description:
  - Makes the environment O(root)C(/versions/<name>), the link O(root)C(/current) to it and the command.
  - It stays while another role has something on the node, which may need the command to take it away.
  - The action of the same name gathers the wheels on the controller, and sends them if the environment is not there;
    the node needs neither pip nor a network. An environment is made under a name that nobody uses, and gets its own
    when it is complete.
options:
  state:
    description: Whether it is there.
    type: str
    choices: [present, absent]
    default: present
  root:
    description: Folder of the environments.
    type: path
    default: /opt/node-devices
  command:
    description: Link to the command; empty makes none.
    type: str
    default: /usr/local/bin/node-device-plugin
  keep:
    description: How many environments stay, the newest first, the current one among them.
    type: int
    default: 2
  node:
    description: What M(nodedevices.kubernetes.node_facts) found; read by the action.
    type: dict
  cache:
    description: Folder on the controller for what is built and fetched; read by the action.
    type: path
  wheelhouse:
    description: Folder on the controller with the locked wheels, in place of fetching them; read by the action.
    type: path
  specs:
    description:
      - What M(nodedevices.kubernetes.cdi_specs) returned, if it ran before with nothing declared; read by the action.
    type: dict
  left:
    description: Roles that would still have something on the node, instead of asking the ledger; set by the action.
    type: list
    elements: str
  name:
    description: Name of the environment; set by the action.
    type: str
  archive:
    description: Archive with the wheels, on the node; set by the action.
    type: path
  wheels:
    description: File name and sha256 of each wheel; set by the action.
    type: dict
author: The node-devices authors
"""

EXAMPLES = r"""
- name: Find out what the node is
  nodedevices.kubernetes.node_facts:
  register: node

- name: Install the plugin's environment
  nodedevices.kubernetes.node_tools:
    node: "{{ node }}"
    cache: ~/.cache/node-devices
"""

RETURN = r"""
environment:
  description: The environment's folder.
  type: str
  returned: success
incomplete:
  description: Whether wheels are needed to go on.
  type: bool
  returned: success
kept:
  description: Paths that are no longer wanted and stay, each with the reason.
  type: list
  elements: dict
  returned: success
"""

import configparser
import json
import os
import subprocess
import sys
import tarfile
import zipfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, Refused
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed, Report

_OWNER = "node_tools"
_COMMAND = "node-device-plugin"
_MARKER = "complete.json"
SCRIPT = """\
#!{python} -I
import sys

from {module} import {function}

sys.exit({function}())
"""


def run(command):
    """Run a command; Refused with its last words if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Refused("%s failed: %s" % (" ".join(command[:4]), done.stdout.strip()[-800:]))


def base_python():
    """The system's Python, also where Ansible itself runs in a virtual environment on the node."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def is_complete(folder, name):
    """Whether the environment is whole, and its Python still the one that it was made for."""
    try:
        with open(os.path.join(folder, _MARKER), encoding="utf-8") as file:
            marker = json.load(file)
    except (OSError, ValueError):
        return False
    python = os.path.join(folder, "bin", "python")
    same_python = marker.get("python") == list(sys.version_info[:2]) and os.path.realpath(python) == base_python()
    return marker.get("name") == name and same_python and os.access(os.path.join(folder, "bin", _COMMAND), os.X_OK)


def unpack_wheel(archive, member, digest, site):
    """Lay one wheel out in site-packages, after checking that its bytes are the locked ones; returns its dist-info."""
    packed = archive.extractfile(member)
    if ledgers.sha256(packed.read()) != digest:
        raise Refused("%s did not arrive as it was sent" % member)
    packed.seek(0)
    with zipfile.ZipFile(packed) as wheel:
        names = wheel.namelist()
        data = [name for name in names if name.split("/")[0].endswith(".data")]
        if data:
            raise Refused("%s has files for other places than site-packages: %s" % (member, data[0]))
        wheel.extractall(site)
    return next(name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info"))


def entry_point(site, dist_info):
    """Module and function behind the command, by the wheel's own metadata."""
    points = configparser.ConfigParser()
    points.optionxform = str
    points.read(os.path.join(site, dist_info, "entry_points.txt"), encoding="utf-8")
    module, _, function = points["console_scripts"][_COMMAND].partition(":")
    return module.strip(), function.strip()


def build(folder, name, archive_path, wheels):
    """Make the environment in a neighbour of ``folder`` that nobody reads, then give it its name."""
    partial = os.path.join(os.path.dirname(folder), ".%s.partial" % name)
    ledgers.remove_tree(partial)
    # Debian's Python has no ensurepip without python3-venv, hence --without-pip.
    run([base_python(), "-I", "-m", "venv", "--without-pip", "--symlinks", partial])
    # They name the folder that is to be renamed, and nobody activates this environment.
    for script in os.listdir(os.path.join(partial, "bin")):
        if script.lower().startswith("activate"):
            os.unlink(os.path.join(partial, "bin", script))
    site = os.path.join(partial, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    with tarfile.open(archive_path) as archive:
        infos = [unpack_wheel(archive, member, digest, site) for member, digest in wheels.items()]
    module, function = entry_point(site, infos[0])
    script = os.path.join(partial, "bin", _COMMAND)
    python = os.path.join(folder, "bin", "python")
    with open(script, "w", encoding="utf-8") as file:
        file.write(SCRIPT.format(python=python, module=module, function=function))
    os.chmod(script, 0o755)
    # Services may not write into it, so it is compiled now; -s and -p give the code the folder's later name.
    compile_all = ["-m", "compileall", "-q", "-j", "0", "-s", partial, "-p", folder, site]
    run([os.path.join(partial, "bin", "python"), "-I", *compile_all])
    with open(os.path.join(partial, _MARKER), "w", encoding="utf-8") as file:
        json.dump({"name": name, "python": list(sys.version_info[:2]), "wheels": wheels}, file, indent=1)
    os.sync()
    ledgers.remove_tree(folder)
    os.rename(partial, folder)
    ledgers.sync_directory(os.path.dirname(folder))


class Environments:
    """All that the role has on the node below one root."""

    def __init__(self, module, ledger):
        self.module = module
        self.ledger = ledger
        self.root = module.params["root"]
        self.owner = "%s %s" % (_OWNER, self.root)
        self.versions = os.path.join(self.root, "versions")

    def managed(self):
        return Managed(
            self.ledger,
            self.owner,
            check=self.module.check_mode,
            after_write=lambda path: self.module.set_default_selinux_context(path, False),
        )

    def links(self, name):
        wanted = [{"kind": "link", "path": os.path.join(self.root, "current"), "target": "versions/%s" % name}]
        command = self.module.params["command"]
        if command:
            target = os.path.join(self.root, "current", "bin", _COMMAND)
            wanted.append({"kind": "link", "path": command, "target": target})
        return wanted

    def trees(self):
        return [path for path in self.ledger.of(self.owner) if self.ledger.entries[path]["kind"] == "tree"]

    def install(self, name):
        """Make the environment if it is not whole; returns whether it had to be made."""
        folder = os.path.join(self.versions, name)
        if is_complete(folder, name):
            return False
        if self.module.check_mode:
            return True
        # The folders and the ledger's entry first, so that an interrupted run leaves nothing unknown.
        versions = {"kind": "directory", "path": self.versions, "mode": 0o755}
        self.managed().converge([versions], keep=self.ledger.of(self.owner))
        for path in (folder, os.path.join(self.versions, ".%s.partial" % name)):
            self.ledger.entries[path] = {"kind": "tree", "owner": self.owner}
        self.ledger.save()
        build(folder, name, self.module.params["archive"], self.module.params["wheels"])
        del self.ledger.entries[os.path.join(self.versions, ".%s.partial" % name)]
        self.ledger.save()
        return True

    def stay(self, name):
        """The environments that stay: this one and the newest of the others."""
        current = os.path.join(self.versions, name)
        others = [path for path in self.trees() if path != current and os.path.isdir(path)]
        others.sort(key=lambda path: os.stat(path).st_mtime, reverse=True)
        return [current, *others[: max(self.module.params["keep"] - 1, 0)]]

    def present(self, name):
        folder = os.path.join(self.versions, name)
        made = self.install(name)
        report = self.managed().converge(
            [{"kind": "directory", "path": self.versions, "mode": 0o755}, *self.links(name)], keep=self.stay(name)
        )
        if made:
            report.written.append(folder)
            report.add_diff(folder, None, {"kind": "virtual environment"})
        return report

    def absent(self):
        if not self.ledger.of(self.owner):
            return Report()
        left = self.module.params["left"]
        others = self.others() if left is None else left
        if not others:
            return self.managed().converge([])
        report = Report()
        reason = "needed to take away what is left of %s" % " and ".join(others)
        report.kept.append({"path": self.root, "reason": reason})
        return report

    def others(self):
        """The other roles that have something on the node; environments elsewhere do not count."""
        owners = {entry.get("owner", "").partition(" ")[0] for entry in self.ledger.entries.values()}
        return sorted(owners - {"", _OWNER})


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "root": {"type": "path", "default": "/opt/node-devices"},
            "command": {"type": "str", "default": "/usr/local/bin/node-device-plugin"},
            "keep": {"type": "int", "default": 2},
            "node": {"type": "dict"},
            "cache": {"type": "path"},
            "wheelhouse": {"type": "path"},
            "specs": {"type": "dict"},
            "left": {"type": "list", "elements": "str"},
            "name": {"type": "str"},
            "archive": {"type": "path"},
            "wheels": {"type": "dict"},
        },
        required_if=[("state", "present", ["name"])],
        supports_check_mode=True,
    )
    name = module.params["name"]
    folder = os.path.join(module.params["root"], "versions", name) if name else None
    present = module.params["state"] == "present"
    if present and not (is_complete(folder, name) or module.check_mode or module.params["archive"]):
        module.exit_json(changed=False, incomplete=True, environment=folder)
    try:
        ledger = Ledger()
        environments = Environments(module, ledger)
        if module.check_mode:
            report = environments.present(name) if present else environments.absent()
        else:
            with ledger:
                report = environments.present(name) if present else environments.absent()
    except Refused as refusal:
        module.fail_json(msg=str(refusal))
    except OSError as error:
        module.fail_json(msg="%s: %s" % (error.filename or module.params["root"], error.strerror or error))
    module.exit_json(
        changed=report.changed,
        incomplete=False,
        environment=folder,
        written=report.written,
        removed=report.removed,
        kept=report.kept,
        diff=report.diffs,
    )


if __name__ == "__main__":
    main()
