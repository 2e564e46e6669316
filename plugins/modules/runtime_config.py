#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_config
short_description: Put a container runtime's configuration in place, and prove that the runtime lives with it
description:
  - The node's side of M(nodedevices.kubernetes.cdi_runtime), which plans. V(checked) says what the runtime would make
    of a configuration. V(applied) writes it, restarts the runtime, and asks the runtime itself; when it does not answer
    as it should, the old configuration is put back and the runtime is restarted with it.
  - V(applied) is a transaction with a journal in C(/var/lib/node-devices), carried out by systemd beside this module,
    so that a lost connection does not stop it. One whose process was killed is undone at once, one that a power cut
    interrupted at the next boot, before the runtime starts, or by V(recovered). In check mode it says what stands in
    the way, and does no more.
options:
  state:
    description: What has been done with the configuration afterwards.
    type: str
    choices: [checked, applied, recovered]
    required: true
  files:
    description: The configuration file, and with V(applied) more files of the same transaction, such as a drop-in.
    type: list
    elements: dict
    suboptions:
      path:
        description: Where it is.
        type: path
        required: true
      content:
        description:
          - Its text; texts that M(nodedevices.kubernetes.node_preflight) hid have its tokens. If left out, an undoing
            removes the file, and V(applied) leaves it as it is.
        type: str
      expected_sha256:
        description:
          - The SHA-256 that the file's text, with its tokens, must have before it is written; no file if left out.
        type: str
      original:
        description:
          - What an undoing is to put back, where somebody else has written the file since our last change. What is
            there now, if left out.
        type: str
  sources:
    description: Other files whose hidden texts O(files) may have, such as files that they import.
    type: list
    elements: path
    default: []
  program:
    description: The runtime's executable.
    type: path
  beside:
    description: Whether the copy to check stands in the file's own folder, for imports relative to it.
    type: bool
    default: false
  check_command:
    description:
      - Command that must succeed before anything is written; V({staged}) stands for the first file's new text. The
        transaction itself checks nothing if left out.
    type: list
    elements: str
    default: []
  drop_in:
    description:
      - When checking, the text of a file that the file imports; V(/{drop_in}) stands for its path in there.
    type: str
  drop_in_directory:
    description:
      - When checking, a folder that the runtime reads whole, and the file is below it. What O(check_command) prints is
        what the runtime makes of it; V({staged}) stands for the folder's copy, in which the file has its new text.
    type: path
  unit:
    description: The runtime's systemd service.
    type: str
  question:
    description: Command that asks the running runtime, and answers in JSON.
    type: list
    elements: str
  spec_dirs:
    description: CDI must be on in the running runtime with these folders; nothing is asked about CDI if left out.
    type: list
    elements: str
  undo:
    description: Whether this takes our change back, so that the ledger forgets it.
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
  description: What the runtime makes of the text.
  type: str
  returned: when checking
staged:
  description: Name of the copy that was checked.
  type: str
  returned: when checking
seconds:
  description: How long the runtime did not answer.
  type: float
  returned: when it was restarted
begun:
  description: Whether a change that was cut off had been begun.
  type: bool
  returned: when recovering, and there was such a change
error:
  description: Why it has been undone; none where it was done.
  type: str
  returned: when recovering, and there was such a change
"""

import contextlib
import os
import shutil
import tempfile
import uuid

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock
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
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.planning import Planning
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.runtime import Failed, run
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.writable import obstacle

_OWNER = "cdi_runtime"
# Seconds that the runtime may take to answer. The wait ends early if the runtime ends.
_TIMEOUT = 120


def revealed(params, entries, hidden):
    """Return the parameters with the texts that their tokens hide. entries: the ledger's. Raises UnknownToken."""
    files = params["files"] or []
    ours = [path for path, entry in entries.items() if entry.get("owner") == _OWNER]
    paths = [*(file["path"] for file in files), *params["sources"], *ours]
    tokens = {path: hidden.hide(text_of(path)) for path in paths}
    hidden_ledger(entries, _OWNER, hidden)

    def with_texts(file):
        file = dict(file, content=hidden.reveal(file["content"]), original=hidden.reveal(file["original"]))
        now = tokens[file["path"]]
        # The controller's hash is of the text with tokens, because a hash of the text itself would confirm guesses.
        if now is not None and sha256(now.encode()) == file["expected_sha256"]:
            file["expected_sha256"] = sha256(text_of(file["path"]).encode())
        return file

    return dict(params, files=list(map(with_texts, files)), drop_in=hidden.reveal(params["drop_in"]))


def check(params):
    """Return the runtime's effective configuration for the text, and the path of the checked copy. Raises Failed."""
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
        raise Failed("{} refuses it: {}".format(params["program"], error.strip().replace(staged, path)))
    return output, staged


def check_drop_in(params):
    """Return the same as `check` for a directory of drop-ins, one of which has the text. Raises Failed."""
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
        raise Failed("{} refuses it: {}".format(params["program"], error.strip().replace(file_path, path)))
    return output, file_path


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
    """Carry out the change; returns its duration, and the written and removed paths. In check mode, only check.

    Raises LedgerConflict if the change is not possible.
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
    """Return the SELinux context that the policy wants for a path; None without SELinux."""
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
