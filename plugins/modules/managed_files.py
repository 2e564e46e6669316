#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_files
short_description: Write a role's files on a node, and remember what was there before
description:
  - Makes a set of files, directories and links what it should be, each in one atomic step, and keeps the ledger
    (C(/var/lib/node-devices/ledger.json)) of what was written and what was there before.
  - The set is everything that the owner wants on the node. What the ledger says it wrote earlier and is not in the set
    is taken away, what it replaced is put back. A file that someone else has changed since stays, and a
    warning says so.
  - Directories that are missing are made, and go again when nobody needs them and they are empty.
options:
  owner:
    description: The role whose files these are.
    type: str
    required: true
  files:
    description: The set; none takes everything of the owner away.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      type:
        description: What it is.
        type: str
        choices: [file, directory, link]
        default: file
      content:
        description: Text of a file.
        type: str
      mode:
        description: Octal mode of a file or directory; files have V(0644) and directories V(0755) if left out.
        type: str
      target:
        description: What a link points to.
        type: str
      validate:
        description:
          - Command that must succeed with the staged file, in place of C(%s), before any file of the set takes its
            place. Not run in check mode, where what it runs may not be installed yet.
        type: str
  keep:
    description: Paths of the owner that stay although they are not in the set.
    type: list
    elements: path
    default: []
  pending:
    description:
      - Files of the owner (path to text, mode V(0644)) that an earlier task of the play writes, for check mode, which
        has not written them; otherwise the files themselves tell.
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
  description: Paths that were made or changed.
  type: list
  elements: str
  returned: success
contents:
  description: Of these, those that are there anew or have another content; of the others only mode or owner changed.
  type: list
  elements: str
  returned: success
removed:
  description: Paths that were removed, or put back to what was there before.
  type: list
  elements: str
  returned: success
kept:
  description: Paths that are no longer wanted and stay, each with the reason.
  type: list
  elements: dict
  returned: success
"""

import os
import shlex

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import InvalidFile, Managed


def item_of(module, file):
    """One element of ``files`` as Managed takes it."""
    item = {"path": file["path"], "kind": file["type"], "validate": file["validate"]}
    needed = {"file": "content", "link": "target"}.get(file["type"])
    if needed and file[needed] is None:
        module.fail_json(msg="%s: a %s needs %s" % (file["path"], file["type"], needed))
    if not os.path.isabs(file["path"]) or os.path.normpath(file["path"]) != file["path"]:
        module.fail_json(msg="%s is not an absolute path in its shortest form" % file["path"])
    if file["type"] == "link":
        item["target"] = file["target"]
    else:
        item["mode"] = int(file["mode"] or {"file": "0644", "directory": "0755"}[file["type"]], 8)
    if file["type"] == "file":
        item["content"] = file["content"].encode()
    return item


def main():
    file_options = {
        "path": {"type": "path", "required": True},
        "type": {"type": "str", "choices": ["file", "directory", "link"], "default": "file"},
        "content": {"type": "str"},
        "mode": {"type": "str"},
        "target": {"type": "str"},
        "validate": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "owner": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file_options},
            "keep": {"type": "list", "elements": "path", "default": []},
            "pending": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )

    play_lock.renew(module)

    def validate(item, staged):
        if not item["validate"]:
            return
        command = [word.replace("%s", staged) for word in shlex.split(item["validate"])]
        code, output, error = module.run_command(command)
        if code:
            said = (error.strip() or output.strip() or "exit code %d" % code).replace(staged, item["path"])
            raise InvalidFile("%s would not be valid, so nothing was written: %s" % (item["path"], said))

    wanted = [item_of(module, file) for file in module.params["files"]]
    try:
        ledger = Ledger()
        managed = Managed(
            ledger,
            module.params["owner"],
            check=module.check_mode,
            after_write=lambda path: module.set_default_selinux_context(path, False),
            pending={path: text.encode() for path, text in (module.params.get("pending") or {}).items()},
        )
        if module.check_mode:
            report = managed.converge(wanted, validate, module.params["keep"])
        else:
            with ledger:
                report = managed.converge(wanted, validate, module.params["keep"])
    except (LedgerConflict, InvalidFile) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg="%s: %s" % (error.filename or module.params["owner"], error.strerror or error))
    for kept in report.kept:
        module.warn("kept: %(path)s, %(reason)s" % kept)
    module.exit_json(
        changed=report.changed,
        written=report.written,
        contents=report.contents,
        removed=report.removed,
        kept=report.kept,
        diff=report.diffs,
    )


if __name__ == "__main__":
    main()
