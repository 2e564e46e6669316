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
  - The module creates missing directories. It removes these directories when they are empty and no owner needs them.
    After it has removed the file of a systemd unit, it makes systemd read its units again.
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
      configuration:
        description: Instead of O(files[].content), the plugin's configuration, as M(nodedevices.kubernetes.declaration)
          returns it. The file gets the node's numbers instead of names of users and groups.
        type: dict
      validate:
        description:
          - Command that must succeed before the module replaces any file of the set. C(%s) stands for the path of the
            staged file. Check mode does not run the command, because its program may not be installed yet.
        type: str
extends_documentation_fragment: nodedevices.kubernetes.shared.code
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
  description: The paths of RV(written) with new content. For the other paths, only mode or owner changed.
  type: list
  elements: str
  returned: success
edited:
  description: The paths of RV(written) that someone else changed or removed since this module wrote them like this.
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

from ..module_utils.converge import files, node


def main():
    node.door(files)


if __name__ == "__main__":
    main()
