#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_files
short_description: Write a role's files on a node, and record the replaced content
description:
  - Writes a set of files and directories, each in one atomic step. The ledger (C(/var/lib/node-devices/ledger.json))
    records each written file and its previous content.
  - The set must contain all files that the owner wants on the node. If the ledger contains another file of the owner,
    the module removes that file or restores its previous content. If someone else has changed the file since, the file
    stays, and the module prints a warning.
  - The action of the same name executes no module if the play's preflight check (C(node_devices_node)) found that the
    files match.
  - The module creates missing directories. It removes these directories when they are empty and no owner needs them.
options:
  owner:
    description: Role that owns the files.
    type: str
    required: true
  files:
    description: The set of files. An empty list removes all files of the owner.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      type:
        description: Type of the entry. A file gets mode V(0644), a directory V(0755).
        type: str
        choices: [file, directory]
        default: file
      private:
        description: Whether only root may open the directory. It then gets mode V(0700).
        type: bool
        default: false
      content:
        description: Text of a file.
        type: str
      validate:
        description:
          - Command that must succeed before the module replaces any file of the set. C(%s) stands for the path of the
            staged file. Check mode does not run the command, because its program may not be installed yet.
        type: str
  pending:
    description:
      - Files of the owner that an earlier task of the play writes, as a mapping from path to text. Only check mode
        needs them, because there the earlier task wrote nothing.
    type: dict
    default: {}
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Write the configuration
  nodedevices.kubernetes.managed_files:
    owner: device_plugin
    files:
      - path: /etc/node-device-plugin/config.yaml
        content: "resources: []\n"
        validate: node-device-plugin validate --config %s

- name: Take all of it away again
  nodedevices.kubernetes.managed_files:
    owner: device_plugin
"""

RETURN = r"""
written:
  description: Paths that the module created or changed.
  type: list
  elements: str
  returned: success
contents:
  description:
    - The paths of RV(written) that are new or have new content. For the other paths, only mode or owner changed.
  type: list
  elements: str
  returned: success
removed:
  description: Paths that the module removed or restored.
  type: list
  elements: str
  returned: success
kept:
  description: Unneeded paths that the module could not remove, each with the reason.
  type: list
  elements: dict
  returned: success
"""

import os
import shlex

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict


def item_of(module, file):
    """Return an element of ``files`` as a wanted item of Managed."""
    path, kind = file["path"], file["type"]
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        module.fail_json(msg=f"{path}: must be an absolute path in its shortest form")
    if kind == "directory":
        return {"path": path, "kind": kind, "mode": 0o700 if file.get("private") else 0o755}
    if file["content"] is None:
        module.fail_json(msg=f"{path}: content is required for a file")
    content = file["content"].encode()
    return {"path": path, "kind": kind, "mode": 0o644, "content": content, "validate": file["validate"]}


def main():
    file_options = {
        "path": {"type": "path", "required": True},
        "type": {"type": "str", "choices": ["file", "directory"], "default": "file"},
        "private": {"type": "bool", "default": False},
        "content": {"type": "str"},
        "validate": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "owner": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file_options},
            "pending": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )

    def validate(item, staged):
        if not item["validate"]:
            return
        command = [word.replace("%s", staged) for word in shlex.split(item["validate"])]
        code, output, error = module.run_command(command)
        if code:
            said = (error.strip() or output.strip() or "exit code %d" % code).replace(staged, item["path"])
            raise LedgerConflict("{} would not be valid, so nothing was written: {}".format(item["path"], said))

    wanted = [item_of(module, file) for file in module.params["files"]]
    pending = {path: text.encode() for path, text in (module.params["pending"] or {}).items()}
    with node_module.ledger_of(module) as ledger:
        managed = node_module.managed(module, ledger, module.params["owner"], pending)
        report = managed.converge(wanted, validate)
    node_module.end(module, report)


if __name__ == "__main__":
    main()
