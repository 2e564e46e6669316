# SPDX-License-Identifier: Apache-2.0
"""Converges a node's kernel modules, udev rules and device nodes to the wanted state."""

from __future__ import annotations

import functools
import os
import time

from ansible.module_utils.common.process import get_bin_path

from .. import device_nodes, plugin_command
from ..ledger import LedgerConflict
from ..udev_rules import Rule

PARAMS = {
    "state": {"type": "str", "choices": ["present", "pruned", "absent"], "default": "present"},
    "modules": {"type": "list", "elements": "dict"},
    "udev_rules": {"type": "list", "elements": "str"},
    "nodes": {"type": "list", "elements": "dict"},
    "prune": {"type": "bool", "default": True},
    **plugin_command.PARAMS,
    "facts": {"type": "dict"},
}
OWNER = "host_devices"
#: The files of the role.
MODULES = "/etc/modules-load.d/node-devices.conf"
OPTIONS = "/etc/modprobe.d/node-devices.conf"
RULES = "/etc/udev/rules.d/70-node-devices.rules"
NODES = "/etc/tmpfiles.d/node-devices.conf"
_HEAD = "# Written by Ansible (nodedevices.kubernetes.host_devices): changes here are overwritten.\n"
# udevd's socket; udevd does not run in containers.
_UDEV = "/run/udev/control"
# Seconds to wait for devices of a module that was just loaded, for udev and then for drivers, and between two checks.
_SETTLE, _PROBE, _PAUSE = 10, 5.0, 0.1
# Key of the ledger's entry for rules that udev has not applied yet.
_PENDING = "/run/udev"


def converge(node, params):
    """Converge the node's devices to ``modules``, ``udev_rules`` and ``nodes``.

    If the command cannot tell which devices pods hold, the answer has the reason as ``in_use``, and nothing changes.
    """
    wanted = [params[name] or [] for name in ("modules", "udev_rules", "nodes")]
    in_use = []
    with node.ledger() as ledger:
        host = HostDevices(node, ledger, {**params, "files": lines(*wanted)})
        try:
            host.converge()
        except plugin_command.CommandError as error:
            in_use.append(str(error))
    answer = node.answer(host.report, leftovers=host.leftovers, in_use=in_use, actions=host.actions)
    return {**answer, "changed": host.report.changed or bool(host.actions)}


def content(lines):
    """Return a file with these lines, as bytes."""
    return (_HEAD + "\n".join(lines) + "\n").encode()


def lines(modules, udev_rules, nodes):
    """Return the wanted lines of each file, by its path. The arguments are the role's variables."""
    return {
        MODULES: [module["name"] for module in modules],
        OPTIONS: ["options {name} {options}".format(**module) for module in modules if module.get("options")],
        RULES: list(udev_rules),
        NODES: [_line(node) for node in nodes],
    }


def _line(node):
    mode = str(node.get("mode") or "0600").zfill(4)
    owner, group = node.get("owner") or "root", node.get("group") or "root"
    return f"{node['type']} {node['path']} {mode} {owner} {group} - {node['major']}:{node['minor']}"


def held(node, params):
    """Return what pods hold: who, the host paths, and whether the device is ours. Raises CommandError."""
    told = plugin_command.holders(node, params)
    return [
        {
            "who": "{} as {}".format("/".join(filter(None, (each.get("namespace"), each["pod"]))), each["resource"]),
            "paths": each["all_host_paths"],
            # A device that no plugin offers counts as ours, because our plugin may have ended.
            "ours": each["by_our_cdi"]
            or each["resource"] in node.facts.get("served", ())
            or each["resource"] not in told["allocatable"],
        }
        for each in told["held"]
    ]


class HostDevices:
    """The wanted state of a node's devices.

    node: a node.Node. ledger: entered as a context manager, unless nothing is written.
    """

    def __init__(self, node, ledger, params):
        self._node = node
        self._ledger = ledger
        self._check = node.check_mode
        self._params = params
        self._prune = params["prune"]
        self._managed = node.managed(ledger, OWNER)
        self.report = self._managed.report
        self._old = {path: self._lines(path) for path in (MODULES, OPTIONS, RULES, NODES)}
        self._new = {path: list(params["files"].get(path, ())) for path in self._old}
        #: Whether to assume the wanted state, because an earlier task in check mode would have converged to it.
        self._is_made = self._check and params["state"] == "pruned"
        self.actions = []
        self.leftovers = False

    @functools.cached_property
    def _held(self):
        """The devices that pods hold. Until the role's task, pods may end or start."""
        self._node.has_unshown_work = True
        return held(self._node, self._params)

    def _lines(self, path):
        """Return the current lines of one of our files."""
        if self._ledger.entries.get(path, {}).get("owner") != OWNER:
            return []
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                return [line for line in file.read().splitlines() if line.strip() and not line.startswith("#")]
        except FileNotFoundError:
            return []

    def converge(self):
        """Converge to the wanted state. The report and the actions have the changes."""
        wanted = device_nodes.parsed(self._new[NODES])
        records = self._records(wanted)
        leaving = {path: self._leaving(path, wanted, records) for path in self._old}
        as_made = {path: [*lines, *leaving[path]] for path, lines in self._new.items()}
        gone = self._gone(wanted, records)
        access = {node.path: node.access for node in wanted.values()}
        replaced = self._refuse(wanted, records)
        loads = [] if self._is_made else self._loads()
        self._keep_lines(leaving)
        if self._is_made:
            # The earlier execution would have kept the lines that only this execution removes.
            self._old = as_made
            self._managed.pending = {path: content(lines) for path, lines in as_made.items() if lines}
        files = [
            {"path": path, "kind": "file", "content": content(lines), "mode": 0o644}
            for path, lines in self._new.items()
            if lines
        ]
        self._claim(records)
        self._managed.converge(files)
        for path in [*gone, *replaced]:
            self._take_away(path, records[path], wanted.get(path))
        if not self._is_made:
            for command in loads:
                self._run(*command)
            self._make(wanted, access)
        self._apply_rules()
        if loads and not self._check:
            self._await_devices()

    def _records(self, wanted):
        """Return the ledger entries of our device nodes and of the wanted ones."""
        records = {path: self._ledger.entries[path] for path in self._ledger.of(device_nodes.OWNER)}
        for path, node in wanted.items():
            if path not in records:
                there = device_nodes.is_node(path, node.device)
                records[path] = node.entry(device_nodes.access_of(path) if there else None)
        return records

    def _gone(self, wanted, records):
        """Return the device nodes to remove. Add the lines of unwanted nodes that stay to the wanted lines."""
        old = device_nodes.parsed(self._old[NODES])
        gone = []
        for path in records:
            if path in wanted:
                continue
            who = self._prune and self._holders_of(path)
            if self._prune and not who:
                gone.append(path)
                continue
            if path in old:
                self._new[NODES].append(old[path].line)
            self._stays(path, who and f"held by {who}")
        return gone

    def _stays(self, what, reason):
        """Report that an unwanted path stays. Without ``prune``, only set ``leftovers`` for a later execution."""
        if self._prune:
            self.report.kept.append({"path": what, "reason": reason})
        else:
            self.leftovers = True

    def _holders_of(self, path):
        real = os.path.realpath(path)
        return ", ".join(sorted({held["who"] for held in self._held if real in held["paths"]}))

    def _refuse(self, wanted, records):
        """Return the paths where our node becomes another device. Raises LedgerConflict if it must not change."""
        replaced = []
        for path, node in wanted.items():
            if device_nodes.is_node(path, node.device) is not False:
                continue
            entry = records[path]
            if entry["before"] is not None or not device_nodes.is_node(path, device_nodes.of_entry(entry)):
                raise LedgerConflict(
                    f"{path} already exists and is another device or file: remove it, or declare another path"
                )
            who = self._holders_of(path)
            if who:
                raise LedgerConflict(
                    f"{path} cannot become another device while it is held by {who}: end the pod first"
                )
            replaced.append(path)
        return replaced

    def _leaving(self, path, wanted, records):
        """Return a file's unwanted lines. They stay until no pod holds their devices."""
        if path == NODES:
            old = device_nodes.parsed(self._old[NODES])
            return [old[each].line for each in records if each in old and each not in wanted]
        gone = [line for line in self._old[path] if line not in self._new[path]]
        if path == OPTIONS:
            # For a wanted module, only its current options count.
            names = {line.split()[1] for line in self._new[OPTIONS]} | set(self._new[MODULES])
            gone = [line for line in gone if line.split()[1:2] and line.split()[1] not in names]
        return gone

    def _keep_lines(self, leaving):
        """Keep unwanted modules, options and rules that a held device may still need."""
        for path in (MODULES, OPTIONS, RULES):
            gone = leaving[path]
            needs = self._needs(gone, path == RULES) if gone and self._prune else {}
            if not gone or (self._prune and not needs):
                continue
            self._new[path] += gone
            who = ", ".join("{} of {}".format(*pair) for pair in sorted(needs.items()))
            self._stays(path, f"it may be needed for {who}")

    def _needs(self, gone, are_rules):
        """Return the held devices of ours that may need a file's lines, each with its holder."""
        by_node = {path: each["who"] for each in self._held if each["ours"] for path in each["paths"]}
        return {
            path: who
            for path, who in by_node.items()
            if device_nodes.is_device(path) and (not are_rules or _are_about(gone, path))
        }

    def _claim(self, records):
        """Record the device nodes and the rules that udev must apply in the ledger, before any change."""
        self._ledger.entries.update(records)
        rules = self._changed_rules()
        if rules:
            entry = {"kind": "udev rules", "owner": "host_devices udev", "rules": rules}
            self._ledger.entries[_PENDING] = entry
        self._ledger.save()

    def _changed_rules(self):
        """Return the new rules that udev has not applied yet, and the old rules that udev must forget."""
        pending = self._ledger.entries.get(_PENDING, {}).get("rules", [])
        if self._old[RULES] != self._new[RULES]:
            changed = set(self._old[RULES]) ^ set(self._new[RULES]) or set(self._new[RULES])
            pending = [*pending, *(rule for rule in [*self._old[RULES], *self._new[RULES]] if rule in changed)]
        return list(dict.fromkeys(pending))

    def _take_away(self, path, entry, successor):
        """Remove a node that we created, or restore an existing node's mode and owner.

        successor: the DeviceNode that replaces the removed node, or None.
        """
        device, before = device_nodes.of_entry(entry), entry["before"]
        if device_nodes.is_node(path, device):
            access = device_nodes.access_of(path)
            if before is None and not device_nodes.is_the_kernels(path, device):
                self._tell("removed", path, device, access, None)
                self.report.removed.append(path)
                if not self._check:
                    os.unlink(path)
            elif before is not None and before != {"kind": "node", **access}:
                self._tell("restored", path, device, access, before)
                if not self._check:
                    device_nodes.set_access(path, before)
        self._ledger.entries.pop(path, None)
        if successor:
            self._ledger.entries[path] = successor.entry(None)
        self._ledger.save()

    def _loads(self):
        """Return the commands that load the missing kernel modules. Raises LedgerConflict if one cannot be loaded."""
        names = [name for name in self._new[MODULES] if not _is_loaded(name)]
        if not names:
            return []
        try:
            modprobe = get_bin_path("modprobe")
        except ValueError:
            raise LedgerConflict(
                "this node has no modprobe, which host_devices_modules needs to load {}: install kmod (Debian: apt-get "
                "install kmod)".format(", ".join(names))
            ) from None
        commands = []
        for name in names:
            code, output, error = self._node.run_command([modprobe, "--show-depends", name])
            if code:
                said = (error.strip() or output.strip() or "exit code %d" % code).splitlines()[-1]
                raise LedgerConflict(
                    f"host_devices_modules has {name}, which the running kernel {os.uname().release} lacks ({said}): "
                    "install the package with this module, or reboot if a newer kernel is installed"
                )
            # An alias may name a built-in module.
            if not all(line.startswith("builtin ") for line in output.splitlines()):
                self.actions.append(f"loaded {name}")
                commands.append([modprobe, name])
        return commands

    def _make(self, wanted, access):
        todo = False
        for path, node in wanted.items():
            found = device_nodes.access_of(path) if device_nodes.is_node(path, node.device) else None
            if found != access[path]:
                todo = True
                self._tell("changed" if found else "made", path, node.device, found, access[path])
        if todo:
            self._run("systemd-tmpfiles", "--create", NODES)

    def _apply_rules(self):
        """Let udev apply changed rules to their devices. Then delete the ledger's entry of pending rules."""
        rules = self._changed_rules()
        if not rules:
            return
        if os.path.exists(_UDEV):
            self.actions.append("udev rules applied")
            self._run("udevadm", "control", "--reload")
            parsed = {line: Rule(line) for line in rules}
            for trigger in dict.fromkeys(tuple(rule.trigger) for rule in parsed.values() if rule.trigger):
                self._run("udevadm", "trigger", "--action=change", *trigger)
            self._run("udevadm", "settle", "--timeout=30")
            unnamed = [line for line, rule in parsed.items() if rule.does_something and not rule.trigger]
            if unnamed:
                self._node.warn(
                    "these udev rules have neither SUBSYSTEM== nor KERNEL==, so until the next boot they apply only "
                    "to new devices: {}".format("; ".join(unnamed))
                )
        else:
            self._node.warn("udevd does not run on this node; the udev rules apply once it runs")
        self._ledger.entries.pop(_PENDING, None)
        self._ledger.save()

    def _await_devices(self):
        """Wait a while for the awaited paths. A driver may probe its devices after modprobe has ended.

        The preflight check that follows reports a path that is still missing.
        """
        if os.path.exists(_UDEV):
            self._node.run_command(["udevadm", "settle", "--timeout=%d" % _SETTLE])
        last = time.monotonic() + _PROBE
        while not all(map(os.path.exists, self._node.facts.get("awaited", ()))) and time.monotonic() < last:
            time.sleep(_PAUSE)

    def _tell(self, action, path, device, before, after):
        """Report a device node's change. before, after: its mode, uid and gid; None if it does not exist."""
        self.actions.append(f"{action} {path}")
        texts = [device_nodes.shown(device, access) if access else "" for access in (before, after)]
        self.report.diffs.append({"before_header": path, "after_header": path, "before": texts[0], "after": texts[1]})

    def _run(self, *command):
        if not self._check:
            self._node.run_command(list(command), check_rc=True)


def _is_loaded(name):
    """Return whether a module is loaded or built in. /sys/module lists a built-in module only if it has parameters."""
    name = name.replace("-", "_")
    if os.path.isdir("/sys/module/" + name):
        return True
    try:
        with open(f"/lib/modules/{os.uname().release}/modules.builtin", encoding="utf-8") as file:
            built_in = {os.path.basename(line.strip()).partition(".")[0].replace("-", "_") for line in file}
    except OSError:
        return False
    return name in built_in


def _are_about(rules, path):
    """Return whether a rule may affect the node's device; true if the kernel does not have the device."""
    device = device_nodes.in_sysfs(path)
    return device is None or any(Rule(rule).is_about(*device) for rule in rules)
