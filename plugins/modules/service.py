#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: service
short_description: A systemd service or timer that runs with what its files say now
description:
  - Makes a service enabled and running, and restarts it only if the process is older than one of O(files). So a play
    that died between writing a file and restarting is fixed by the next one, which a handler would not do.
  - Reloads it where only O(reload_files) changed, and only if the process itself says that it needs to
    (O(reload_check)). A process that already took them in is left alone.
  - Systemd reads its units again only where one changed, because that can take device rules away from running
    containers.
  - A service that does not come up fails with its last journal lines.
options:
  name:
    description: Name of the unit, with its ending.
    type: str
    required: true
  state:
    description: V(absent) stops and disables it; its files are someone else's.
    type: str
    choices: [started, absent]
    default: started
  files:
    description: Files and links that the process reads when it starts.
    type: list
    elements: path
    default: []
  reload_files:
    description: Files that the process reads again when it is reloaded (C(systemctl reload)).
    type: list
    elements: path
    default: []
  reload_check:
    description: Command that fails if the process does not run with what O(reload_files) say now; writes nothing.
    type: list
    elements: str
    default: []
  pending:
    description: Whether this play would change one of the files, for check mode; otherwise the files themselves tell.
    type: bool
    default: false
  pending_reload:
    description:
      - Whether this play changes one of O(reload_files), or would. Then the service has another configuration, also if
        the process has taken it in by itself.
    type: bool
    default: false
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Run the plugin
  nodedevices.kubernetes.service:
    name: node-device-plugin.service
    files: [/etc/systemd/system/node-device-plugin.service]
    reload_files: [/etc/node-device-plugin/config.yaml]
    reload_check: [node-device-plugin, reload, --check]
"""

RETURN = r"""
actions:
  description: What was done, or in check mode would be.
  type: list
  elements: str
  returned: success
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "NeedDaemonReload",
    "ExecMainStartTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)
_JOURNAL_LINES = "20"


class Service:
    """A unit, and what was done to it."""

    def __init__(self, module):
        self.module = module
        self.name = module.params["name"]
        self.actions = []
        self.state = self._show()

    def _show(self):
        command = ["systemctl", "show", self.name, "--property=" + ",".join(_PROPERTIES)]
        _code, output, _error = self.module.run_command(command, check_rc=True)
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    def started(self):
        """When its process started, in seconds since the epoch by the clock as it is now; None if it does not run.

        Of a unit that has no process, such as a timer: when it became active.
        """
        if self.state["ActiveState"] != "active":
            return None
        entered = self.state.get("ExecMainStartTimestampMonotonic", self.state.get("ActiveEnterTimestampMonotonic"))
        since_boot = int(entered or 0) / 1e6
        return time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - since_boot)

    def newer(self, files, started):
        """The files that changed after the process started; what lies in the future tells nothing."""
        changed = []
        for path in files:
            try:
                modified = os.lstat(path).st_mtime
            except OSError:
                continue
            if started < modified <= time.time():
                changed.append(path)
        return changed

    def holds(self, command):
        """Whether a command succeeds."""
        code, _output, _error = self.module.run_command(command)
        return code == 0

    def do(self, action, *arguments):
        """Run systemctl, or in check mode only say so."""
        self.actions.append(action)
        if self.module.check_mode:
            return
        code, _output, error = self.module.run_command(["systemctl", *arguments])
        if code:
            journal = ["journalctl", "--unit", self.name, "--lines", _JOURNAL_LINES, "--no-pager", "--output", "cat"]
            _code, lines, _error = self.module.run_command(journal)
            self.module.fail_json(
                msg="%s could not be %s: %s\nIts last journal lines:\n%s"
                % (self.name, action, error.strip().splitlines()[0] if error.strip() else "no reason given", lines),
                actions=self.actions,
            )


def run(service, parameters):
    """Enabled, running, and not older than its files."""
    check_mode = service.module.check_mode
    # `enable` makes systemd read its units again, too.
    if service.state["UnitFileState"] not in ("enabled", "enabled-runtime"):
        service.do("enabled", "enable", service.name)
    elif service.state["NeedDaemonReload"] == "yes":
        service.do("read again", "daemon-reload")
    started = service.started()
    if started is None:
        service.do("started", "restart", service.name)
    elif (parameters["pending"] and check_mode) or service.newer(parameters["files"], started):
        service.do("restarted", "restart", service.name)
    elif parameters["pending_reload"] and (check_mode or service.holds(parameters["reload_check"])):
        # By itself, sooner than it could be asked to.
        service.actions.append("reloaded")
    elif parameters["pending_reload"] or (
        service.newer(parameters["reload_files"], started) and not service.holds(parameters["reload_check"])
    ):
        service.do("reloaded", "reload", service.name)


def stop(service):
    """Stopped and disabled."""
    if service.state["ActiveState"] not in ("inactive", "failed"):
        service.do("stopped", "stop", service.name)
    if service.state["UnitFileState"] in ("enabled", "enabled-runtime"):
        service.do("disabled", "disable", service.name)


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
            "files": {"type": "list", "elements": "path", "default": []},
            "reload_files": {"type": "list", "elements": "path", "default": []},
            "reload_check": {"type": "list", "elements": "str", "default": []},
            "pending": {"type": "bool", "default": False},
            "pending_reload": {"type": "bool", "default": False},
        },
        required_by={"reload_files": ["reload_check"]},
        supports_check_mode=True,
    )
    play_lock.renew(module)
    service = Service(module)
    if module.params["state"] == "started":
        run(service, module.params)
    else:
        stop(service)
    module.exit_json(changed=bool(service.actions), actions=service.actions)


if __name__ == "__main__":
    main()
