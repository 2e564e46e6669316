#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_config
short_description: Apply a container runtime's configuration, and check that the runtime accepts it
description:
  - This module runs on the node for M(nodedevices.kubernetes.cdi_runtime), which plans the change. V(checked) returns
    the effective configuration that the runtime would use. V(applied) writes the configuration, restarts the runtime
    and queries it. If the answer is wrong, the module restores the old configuration and restarts the runtime.
  - V(applied) is a transaction with a journal in C(/var/lib/node-devices). systemd runs the transaction independently
    of this module, so a lost connection does not stop it. If the transaction's process is killed, systemd undoes the
    change at once. After a power cut, the change is undone by the next boot before the runtime starts, or by
    V(recovered). In check mode, V(applied) only reports obstacles.
options:
  state:
    description: Whether to check a configuration, to apply it, or to finish or undo an interrupted change.
    type: str
    choices: [checked, applied, recovered]
    required: true
  files:
    description: The configuration file and, with V(applied), more files of the same transaction, such as a drop-in.
    type: list
    elements: dict
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description:
          - Text of the file, in which tokens replace the texts that M(nodedevices.kubernetes.node_preflight) hid. If
            left out, V(applied) leaves the file unchanged, or with O(undo) restores the original file.
        type: str
      expected_sha256:
        description:
          - Required SHA-256 of the file's current text, with tokens in place of hidden texts. If left out, the file
            must not exist.
        type: str
      original:
        description:
          - Text that a later O(undo) will restore, if someone else has written the file since the last change. The
            default is the current text.
        type: str
  sources:
    description: Other files, such as imported files. O(files) may contain tokens for hidden texts of these files.
    type: list
    elements: path
    default: []
  program:
    description: Path of the runtime's executable.
    type: path
  beside:
    description: Whether to put the checked copy into the file's own directory, so that relative imports work.
    type: bool
    default: false
  check_command:
    description:
      - Command that must succeed before the module writes a file. V({staged}) stands for the path of a copy of the
        first file's new text. If left out, the transaction does not check the text.
    type: list
    elements: str
    default: []
  drop_in:
    description:
      - For V(checked), the text of a file that the configuration file imports. In the configuration file, V(/{drop_in})
        stands for the path of the imported file.
    type: str
  drop_in_directory:
    description:
      - For V(checked), the directory of drop-ins that contains the file. O(check_command) then prints the effective
        configuration, and V({staged}) stands for a copy of the directory with the new text.
    type: path
  unit:
    description: The runtime's systemd service.
    type: str
  question:
    description: Command that queries the running runtime and answers in JSON.
    type: list
    elements: str
  spec_dirs:
    description: CDI spec directories that the running runtime must use. If left out, the module does not check CDI.
    type: list
    elements: str
  undo:
    description:
      - Whether the change restores the earlier state. The module then removes the earlier change from the ledger.
    type: bool
    default: false
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: See what containerd would make of a file
  nodedevices.kubernetes.runtime_config:
    state: checked
    files: [{path: /etc/containerd/config.toml, content: "version = 2\n"}]
    program: /usr/bin/containerd

- name: Finish or undo what was cut off
  nodedevices.kubernetes.runtime_config:
    state: recovered
"""

RETURN = r"""
effective:
  description: The effective configuration that the runtime reads from the text.
  type: str
  returned: for V(checked)
staged:
  description: Path of the checked copy.
  type: str
  returned: for V(checked)
seconds:
  description: Seconds during which the runtime did not answer.
  type: float
  returned: if the runtime was restarted
begun:
  description: Whether the interrupted change had begun.
  type: bool
  returned: for V(recovered), if a change was interrupted
error:
  description: Reason why the change was undone; null if the change was completed.
  type: str
  returned: for V(recovered), if a change was interrupted
"""

import contextlib
import os
import shutil
import tempfile
import uuid

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock, safe_words
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.decisions import Planning
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.hidden import Hidden, hidden_ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import (
    Ledger,
    LedgerConflict,
    naming,
    sentence,
    sha256,
)
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.processes import text_of
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import launch
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Places, Plan
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.runtime import Failed, run
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.writable import obstacle

_OWNER = "cdi_runtime"
# Seconds that the runtime may take to answer. If the runtime ends, the wait ends.
_TIMEOUT = 120


def revealed(params, entries, hidden):
    """Return the parameters with the original strings instead of tokens. Raises UnknownToken.

    entries: the ledger's entries.
    """
    files = params["files"] or []
    ours = [path for path, entry in entries.items() if entry.get("owner") == _OWNER]
    paths = [*(file["path"] for file in files), *params["sources"], *ours]
    tokens = {path: hidden.hide(text_of(path)) for path in paths}
    hidden_ledger(entries, _OWNER, hidden)

    def with_texts(file):
        file = dict(file, content=hidden.reveal(file["content"]), original=hidden.reveal(file["original"]))
        now = tokens[file["path"]]
        # The controller's hash is of the text with tokens. Replace it by the hash of the original text.
        if now is not None and sha256(now.encode()) == file["expected_sha256"]:
            file["expected_sha256"] = sha256(text_of(file["path"]).encode())
        return file

    return dict(params, files=list(map(with_texts, files)), drop_in=hidden.reveal(params["drop_in"]))


def check(params):
    """Let the runtime check the new text. Raises Failed.

    Returns the runtime's effective configuration, and the path of the checked copy.
    """
    if params["drop_in_directory"]:
        return check_drop_in(params)
    path, content = params["files"][0]["path"], params["files"][0]["content"] or ""
    directory = os.path.dirname(path) if params["beside"] else None
    with contextlib.ExitStack() as stack:
        if params["drop_in"] is not None:
            content = content.replace("/{drop_in}", stack.enter_context(copy_of(params["drop_in"])))
        staged = stack.enter_context(copy_of(content, directory))
        code, output, error = run([params["program"], "--config", staged, "config", "dump"])
    if code:
        raise _rejected(params["program"], error.strip().replace(staged, path), path)
    return output, staged


def check_drop_in(params):
    """Let the runtime check a copy of the drop-in directory with the new text. Raises Failed. Returns as `check`."""
    directory, path = params["drop_in_directory"], params["files"][0]["path"]
    with tempfile.TemporaryDirectory(prefix="node-devices.") as top:
        staged = os.path.join(top, "drop-ins")
        if os.path.isdir(directory):
            shutil.copytree(directory, staged)
        file_path = os.path.join(staged, os.path.relpath(path, directory))
        os.makedirs(os.path.dirname(file_path), exist_ok=True)
        with naming(file_path), open(file_path, "w", encoding="utf-8", newline="") as file:
            file.write(params["files"][0]["content"] or "")
        code, output, error = run([word.replace("{staged}", staged) for word in params["check_command"]])
    if code:
        raise _rejected(params["program"], error.strip().replace(file_path, path), path)
    return output, file_path


def _rejected(program, said, path):
    """Return the error for a refused text. said: the program's message, which may quote any value."""
    known = (program, os.path.basename(program), path)
    return Failed(f"{program} rejects the new configuration: {safe_words.message(said, known)}")


@contextlib.contextmanager
def copy_of(content, directory=None):
    """Write a text to a temporary file, and yield the file's path."""
    descriptor, path = tempfile.mkstemp(prefix=".node-devices.", suffix=".tmp", dir=directory)
    try:
        with naming(path), os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)


def apply(module, params, places):
    """Carry out the change. Returns its duration, and the written and removed paths.

    In check mode, checks the change without making it. Raises LedgerConflict if the change is not possible.
    """
    planning = Planning(Ledger(places.directory).entries, _OWNER, params["undo"], lambda path: context_of(module, path))
    for given in params["files"]:
        planning.add(**given)
    for file in planning.files:
        reason = obstacle(file.path)
        if reason:
            raise Failed(f"{file.path}: {reason}; nothing was changed")
    if module.check_mode:
        return {}
    plan = Plan(
        identity=uuid.uuid4().hex,
        owner=_OWNER,
        files=planning.files,
        directories=planning.directories,
        entries=planning.entries,
        undo=params["undo"],
        check=params["check_command"],
        unit=params["unit"],
        question=params["question"],
        spec_dirs=params["spec_dirs"],
        timeout=_TIMEOUT,
    )
    outcome = launch.carry_out(places, plan)
    if outcome.error:
        raise Failed(outcome.error)
    return {
        "seconds": outcome.seconds,
        "written": [file.path for file in plan.files if file.content is not None],
        "removed": [file.path for file in plan.files if file.content is None],
    }


def context_of(module, path):
    """Return a path's default SELinux context; None without SELinux."""
    return ":".join(module.selinux_default_context(path)) if module.selinux_enabled() else None


def recover(module, places):
    """Finish or undo an interrupted transaction."""
    if not places.left():
        return {"changed": False}
    if module.check_mode:
        return {"changed": True}
    outcome = launch.settle(places)
    return {"changed": True, "begun": outcome is not None, "error": outcome and outcome.error}


def main():
    file_options = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str"},
        "expected_sha256": {"type": "str"},
        "original": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["checked", "applied", "recovered"], "required": True},
            "files": {"type": "list", "elements": "dict", "options": file_options},
            "sources": {"type": "list", "elements": "path", "default": []},
            "program": {"type": "path"},
            "beside": {"type": "bool", "default": False},
            "check_command": {"type": "list", "elements": "str", "default": []},
            "drop_in": {"type": "str"},
            "drop_in_directory": {"type": "path"},
            "unit": {"type": "str"},
            "question": {"type": "list", "elements": "str"},
            "spec_dirs": {"type": "list", "elements": "str"},
            "undo": {"type": "bool", "default": False},
        },
        required_if=[("state", "checked", ["files", "program"]), ("state", "applied", ["files", "unit", "question"])],
        supports_check_mode=True,
    )
    play_lock.renew(module)
    places, hidden = Places(), Hidden()
    try:
        params = revealed(module.params, Ledger(places.directory).entries, hidden)
        if params["state"] == "checked":
            effective, staged = check(params)
            result = {"changed": False, "effective": hidden.hide(effective), "staged": staged}
        elif params["state"] == "recovered":
            result = recover(module, places)
            result["error"] = hidden.scrub(result.get("error"))
        else:
            result = {"changed": True, **apply(module, params, places)}
    except (LedgerConflict, OSError) as error:
        module.fail_json(msg=hidden.scrub(sentence(error)))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
