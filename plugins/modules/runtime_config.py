#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_config
short_description: Put a container runtime's configuration in place, and prove that the runtime lives with it
description:
  - The node's side of M(nodedevices.kubernetes.cdi_runtime), which plans. V(check) says what the runtime would make of
    a configuration. V(apply) writes it, restarts the runtime, and asks the runtime itself; when it does not answer as
    it should, the old configuration is put back and the runtime is restarted with it.
options:
  do:
    description: What to do.
    type: str
    choices: [check, apply]
    required: true
  path:
    description: The configuration file.
    type: path
    required: true
  content:
    description: Its text; no file if left out.
    type: str
  expected_sha256:
    description: What the file must be before it is written; no file if left out.
    type: str
  program:
    description: The runtime's executable.
    type: path
    required: true
  beside:
    description: Whether the copy to check stands in the file's own folder, for imports relative to it.
    type: bool
    default: false
  imports:
    description: Files that the configuration imports, as paths and patterns, to be returned when checking.
    type: list
    elements: path
    default: []
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
  patience:
    description: Seconds that the runtime may take to answer.
    type: int
    default: 30
author: The node-devices authors
"""

EXAMPLES = r"""
- name: See what containerd would make of a file
  nodedevices.kubernetes.runtime_config:
    do: check
    path: /etc/containerd/config.toml
    content: "version = 2\n"
    program: /usr/bin/containerd
"""

RETURN = r"""
effective:
  description: What the runtime makes of the text.
  type: str
  returned: when checking
imported:
  description: The text of each file of O(imports), by path.
  type: dict
  returned: when checking
staged:
  description: Name of the copy that was checked.
  type: str
  returned: when checking
seconds:
  description: How long the runtime did not answer.
  type: float
  returned: when it was restarted
"""

import copy
import glob
import json
import os
import subprocess
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import folders
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, Refused
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed

_OWNER = "cdi_runtime"
_JOURNAL_LINES = "15"
_PAUSE = 0.1


class Failed(Exception):
    """A step that did not work out."""


def run(command, seconds=60):
    """Exit code, standard output and standard error."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def check(params):
    """What the runtime makes of the text."""
    folder = os.path.dirname(params["path"]) if params["beside"] else None
    descriptor, staged = tempfile.mkstemp(prefix=".node-devices.", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(params["content"] or "")
        code, output, error = run([params["program"], "--config", staged, "config", "dump"])
    finally:
        os.unlink(staged)
    if code:
        raise Failed("%s refuses it: %s" % (params["program"], error.strip().replace(staged, params["path"])))
    return output, staged


def texts_of(patterns):
    """The text of every file that one of the patterns names, by path."""
    texts = {}
    for path in sorted({path for pattern in patterns for path in glob.glob(pattern)}):
        try:
            with open(path, encoding="utf-8", newline="") as file:
                texts[path] = file.read()
        except (OSError, UnicodeDecodeError):
            continue
    return texts


class Transaction:
    """Write, restart, ask; or all of it back."""

    def __init__(self, module, ledger):
        self.params = module.params
        self.ledger = ledger
        self.before = ledgers.state_of(self.params["path"])
        self.entries = copy.deepcopy(ledger.entries)
        self.managed = Managed(ledger, _OWNER, after_write=lambda path: module.set_default_selinux_context(path, False))
        self.seconds = None

    def carry_out(self):
        """Returns what changed of files. Raises Failed when the old state is back."""
        content = self.before["content"] if self.before and self.before["kind"] == "file" else None
        if (ledgers.sha256(content) if content is not None else None) != self.params["expected_sha256"]:
            raise Failed("%s was changed by someone else in the meantime; run again" % self.params["path"])
        # The question is asked before anything is touched: whoever cannot ask cannot prove.
        self.ask(None)
        changed = self.write()
        try:
            self.restart()
            self.wait(self.params["spec_dirs"])
        except Failed as failure:
            journal = self.journal()
            raise Failed("%s\n%s\nIts last journal lines:\n%s" % (failure, self.roll_back(), journal)) from failure
        return changed

    def write(self):
        """Put the text in place, with the ledger's entry; when undoing, the entry goes."""
        path, content = self.params["path"], self.params["content"]
        if self.params["undo"]:
            ledgers.put_back(path, self.undone(content))
            del self.ledger.entries[path]
            self.ledger.save()
            # The folders that only this file needed.
            return self.managed.converge([])
        now = self.before["content"].decode("utf-8") if self.before else None
        if content == now:
            return self.managed.converge([], keep=[path])
        mode = self.before["mode"] if self.before else 0o644
        return self.managed.converge([{"path": path, "kind": "file", "content": content.encode(), "mode": mode}])

    def undone(self, content):
        """What is put back: what was there before us, mode and owner too, if the text is the same."""
        original = ledgers.stored(self.ledger.entries[self.params["path"]]["before"])
        if content is None or (original is not None and original["content"] == content.encode()):
            return original
        return dict(self.before, content=content.encode())

    def restart(self):
        self.started = time.monotonic()
        # Earlier attempts must not count against this one.
        run(["systemctl", "reset-failed", self.params["unit"]])
        code, _output, error = run(["systemctl", "restart", self.params["unit"]], seconds=180)
        if code:
            raise Failed("%s did not start: %s" % (self.params["unit"], (error.strip().splitlines() or ["?"])[0]))

    def ask(self, spec_dirs):
        """The running runtime's own answer. Raises Failed where it does not say what it should."""
        code, output, error = run(self.params["question"], seconds=20)
        if code:
            raise Failed((error.strip().splitlines() or ["%s failed" % self.params["question"][0]])[-1])
        if spec_dirs is None:
            return
        cdi = json.loads(output)["cdi"]
        lacking = folders.lacking(spec_dirs, cdi["spec_dirs"] or [])
        if not cdi["enabled"] or lacking:
            raise Failed("the running daemon says that CDI is %s, folders %s" % (cdi["enabled"], cdi["spec_dirs"]))

    def wait(self, spec_dirs):
        """Until the runtime answers as it should."""
        until = time.monotonic() + self.params["patience"]
        while True:
            try:
                self.ask(spec_dirs)
                self.seconds = round(time.monotonic() - self.started, 2)
                return
            except Failed as failure:
                if time.monotonic() > until:
                    raise Failed("after the restart: %s" % failure) from failure
            time.sleep(_PAUSE)

    def roll_back(self):
        """The old file, the old ledger, and a runtime that runs with them; returns what became of it."""
        ledgers.put_back(self.params["path"], self.before)
        self.ledger.entries = self.entries
        self.ledger.save()
        try:
            self.restart()
            self.wait(None)
        except Failed as failure:
            return "The old configuration was put back, and still: %s" % failure
        return "The old configuration was put back, and the runtime answers again."

    def journal(self):
        command = ["journalctl", "--unit", self.params["unit"], "--lines", _JOURNAL_LINES]
        return run([*command, "--no-pager", "--output", "cat"])[1]


def main():
    module = AnsibleModule(
        argument_spec={
            "do": {"type": "str", "choices": ["check", "apply"], "required": True},
            "path": {"type": "path", "required": True},
            "content": {"type": "str"},
            "expected_sha256": {"type": "str"},
            "program": {"type": "path", "required": True},
            "beside": {"type": "bool", "default": False},
            "imports": {"type": "list", "elements": "path", "default": []},
            "unit": {"type": "str"},
            "question": {"type": "list", "elements": "str"},
            "spec_dirs": {"type": "list", "elements": "str"},
            "undo": {"type": "bool", "default": False},
            "patience": {"type": "int", "default": 30},
        },
        required_if=[("do", "apply", ["unit", "question"])],
        supports_check_mode=True,
    )
    try:
        if module.params["do"] == "check":
            output, staged = check(module.params)
            imported = texts_of(module.params["imports"])
            module.exit_json(changed=False, effective=output, staged=staged, imported=imported)
        with Ledger() as ledger:
            transaction = Transaction(module, ledger)
            report = transaction.carry_out()
    except (Failed, Refused) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg="%s: %s" % (error.filename or module.params["path"], error.strerror or error))
    module.exit_json(changed=True, seconds=transaction.seconds, written=report.written, removed=report.removed)


if __name__ == "__main__":
    main()
