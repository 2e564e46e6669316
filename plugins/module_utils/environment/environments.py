# SPDX-License-Identifier: Apache-2.0
"""Manages the environments of role node_tools on a node."""

from __future__ import annotations

import json
import os
import re
import time
from typing import NamedTuple

from .. import node_code
from ..ledger import LedgerConflict, remove_tree
from ..managed import Report
from ..node_device_plugin.support.tables import few
from . import change
from .build import COMMAND, VersionError, build, can_run, edited, is_complete

_OWNER = "node_tools"
# Owner of the archives of code, which environments below several roots may share.
_CODE = f"{_OWNER} code"
_SERVICE = "node-device-plugin.service"
# How many edited files a diff names.
_SHOWN = 5
#: The file below the root that records the version that failed its health check, so that later runs do not retry it.
FAILED = "refused.json"


class FailedUpgrade(NamedTuple):
    """An upgrade that failed. name: the version's name. why: the missing items. when: UTC time in ISO 8601.

    A version's name contains the hash of its content. Therefore another build of the same version counts as new. Only
    the last failure is recorded, until another version becomes current.
    """

    name: str
    why: str
    when: str

    def sentence(self, current):
        """Return a message that says why the upgrade is not retried. current: name of the version in use."""
        return (
            f"version {self.name} failed its health check on this node at {self.when} and is not retried "
            f"automatically: {self.why}. Version {current} stays in use; to retry after fixing the cause, add -e "
            "node_tools_retry=true"
        )


class Environments:
    """The role's environments, links and records below one root on the node."""

    def __init__(self, node, ledger, params):
        self.node = node
        self.ledger = ledger
        self.params = params
        self.root = params["root"]
        self.owner = f"{_OWNER} {self.root}"
        self.directories = os.path.join(self.root, "versions")
        self.versions = change.Versions(self.root, change.Unit(_SERVICE), params["timeout"])
        self.previous = os.path.join(self.root, "previous")
        self.record = os.path.join(self.root, FAILED)
        #: Further keys of the module's result.
        self.told = {}
        self.report = Report()

    def managed(self, owner=None):
        """Return the role's or another owner's `Managed`, which adds to the report."""
        managed = self.node.managed(self.ledger, owner or self.owner)
        managed.report = self.report
        return managed

    def wanted(self, name, previous, failed=None):
        """Return the environments' directory, the links and the record of a failed upgrade as wanted items.

        previous: the version that the last upgrade replaced, or None. failed: a FailedUpgrade, or None.
        """
        wanted = [
            {"kind": "directory", "path": self.directories, "mode": 0o755},
            {"kind": "link", "path": self.versions.link, "target": f"versions/{name}"},
        ]
        if previous:
            wanted.append({"kind": "link", "path": self.previous, "target": f"versions/{previous}"})
        command = self.params["command"]
        if command:
            target = os.path.join(self.root, "current", "bin", COMMAND)
            wanted.append({"kind": "link", "path": command, "target": target})
        if failed:
            content = (json.dumps(failed._asdict(), indent=1) + "\n").encode()
            wanted.append({"kind": "file", "path": self.record, "content": content, "mode": 0o644})
        return wanted

    def _failed(self):
        """Return the recorded FailedUpgrade; None if the file is missing or invalid."""
        try:
            with open(self.record, encoding="utf-8") as file:
                return FailedUpgrade(**{key: str(value) for key, value in json.load(file).items()})
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def names(self):
        """Return the names of the existing environments, the last installed first.

        The ledger numbers them, because a directory's time may be wrong. An earlier release gave no numbers, so its
        environments come last, the highest version first.
        """
        entries = [path for path in self.ledger.of(self.owner) if self.ledger.entries[path]["kind"] == "tree"]
        trees = [path for path in entries if os.path.isdir(path) and not os.path.basename(path).startswith(".")]
        return [os.path.basename(path) for path in sorted(trees, key=self._age, reverse=True)]

    def _age(self, path):
        version = re.findall(r"\d+", os.path.basename(path).rpartition("-")[0])
        return self.ledger.entries[path].get("number", 0), [int(part) for part in version]

    def _settle(self):
        """Undo an earlier run's interrupted change."""
        known = self.ledger.entries.get(self.versions.link, {}).get("target", "")
        if self.versions.settle(os.path.basename(known) or None):
            self.node.warn("a change of the plugin's version by an earlier, interrupted run was undone")

    def install(self, name):
        """Create the environment if it is missing, edited or cannot run. Returns whether the creation is necessary."""
        directory = self.versions.directory(name)
        if is_complete(directory, name):
            # The entry is missing only if the ledger was lost.
            self.ledger.entries.setdefault(directory, {"kind": "tree", "owner": self.owner})
            return False
        if self.node.check_mode:
            return True
        # Create the directories and the ledger's entry first, so that an interrupted run leaves nothing unrecorded.
        directories = {"kind": "directory", "path": self.directories, "mode": 0o755}
        self.managed().converge([directories], keep=self.ledger.of(self.owner))
        partial = self.versions.directory(f".{name}.partial")
        number = 1 + max((entry.get("number", 0) for entry in self.ledger.entries.values()), default=0)
        for path in (directory, partial):
            self.ledger.entries.setdefault(path, {"kind": "tree", "owner": self.owner})
        self.ledger.save()
        try:
            build(directory, name, self.params["archive"], self.params["wheels"])
            self.ledger.entries[directory].setdefault("number", number)
        finally:
            # After a failure, the partial environment may be what filled the disk.
            remove_tree(partial)
            for path in (directory, partial):
                if not os.path.isdir(path):
                    del self.ledger.entries[path]
            self.ledger.save()
        return True

    def stay(self, name, previous, without=None):
        """Return the directories of the versions to keep.

        These are the current version, the previous version, and the newest other versions that can run.
        """
        first = [name] + [previous] * (previous not in (name, None))
        others = [other for other in self.names() if other not in (*first, without) and self._can_run(other)]
        stay = first + others[: max(self.params["keep"] - len(first), 0)]
        return [self.versions.directory(each) for each in stay]

    def refuse_again(self, name):
        """Raise VersionError if the running service already failed an upgrade to ``name``, unless ``retry`` is set."""
        was, failed = self.versions.current(), self._failed()
        asked_for = self.params["retry"] or was in (None, name)
        if failed and failed.name == name and not asked_for and self.versions.runs():
            raise VersionError(failed.sentence(was))

    def present(self, name):
        self.refuse_again(name)
        was, before = self.versions.current(), self._previous()
        by_hand = edited(self.versions.directory(name))
        made = self.install(name)
        previous = before
        if was != name:
            previous = was if was and self._can_run(was) else None
        try:
            self._go_to(was, name, previous, remade=made)
        except LedgerConflict as error:
            if was not in (None, name) and self.versions.current() == was:
                # Omit `previous`, so that a rollback does not undo an earlier, successful upgrade.
                failed = self._failed()
                if isinstance(error, change.NotReady):
                    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                    before, failed = None, FailedUpgrade(name, error.why, when)
                self.managed().converge(self.wanted(was, before, failed), keep=self.stay(was, before, without=name))
            raise
        if made:
            directory = self.versions.directory(name)
            self.report.written.append(directory)
            self.report.edited += [directory] * (was == name)
            self.report.add_diff(directory, _edited_environment(by_hand), {"kind": "virtual environment"})

    def rolled_back(self, wanted):
        """Make a version current. wanted: its full name or version number; empty to undo the last upgrade."""
        was, previous = self.versions.current(), self._previous()
        if was is None:
            raise VersionError(f"no version is installed below {self.root}: run site.yml first")
        if not wanted:
            name = previous or was
        elif _is_named(was, wanted):
            name = was
        else:
            name = next((each for each in self.names() if _is_named(each, wanted)), None)
        if name is None:
            raise VersionError(
                "version {} is not installed below {}: use one of {}".format(wanted, self.root, ", ".join(self.names()))
            )
        if name != was and not self._can_run(name):
            raise VersionError(
                f"version {name} can no longer run on this node, because its Python was removed: reinstall that "
                "Python, or use another version"
            )
        self._go_to(was, name, previous if name == was else None)

    def _previous(self):
        """Return the version that the last upgrade replaced; None if that version was removed or restored."""
        name = self.versions.target_of(self.previous)
        return name if name in self.names() else None

    def _can_run(self, name):
        # An edited environment counts too, because the service was able to run from it.
        return can_run(self.versions.directory(name), name)

    def _go_to(self, was, name, previous, remade=False):
        """Make a version current and remove surplus versions. If the service runs from this root, check its health."""
        tried = was is not None and (was != name or remade) and self.versions.runs()
        self.told.update(was=was, environment=self.versions.directory(name), restarted=tried)
        if tried and not self.node.check_mode:
            self.told["seconds"] = self.versions.change(was, name)
        failed = self._failed() if was == name else None
        managed, wanted, stay = self.managed(), self.wanted(name, previous, failed), self.stay(name, previous)
        if tried and not self.node.check_mode:
            # Keep the previous version, because the next boot may restore it until the change is closed.
            managed.converge(wanted, keep=[*stay, self.versions.directory(was)])
            change.close()
        managed.converge(wanted, keep=stay)
        if tried and was != name and not self.node.check_mode:
            self.report.written.append(self.versions.link)
            links = [{"kind": "link", "target": f"versions/{each}"} for each in (was, name)]
            self.report.add_diff(self.versions.link, *links)
        self._keep_code(stay)

    def _keep_code(self, stay=()):
        """Keep the code of the staying environments and of those below other roots, and remove other code.

        stay: the directories of the staying environments, the current one first. It needs the code that this process
        has loaded. An environment's entry in the ledger has its code's hash.
        """
        trees = {path: entry for path, entry in self.ledger.entries.items() if entry["kind"] == "tree"}
        wanted, loaded = [], node_code.loaded()
        if loaded and stay:
            digest, content = loaded
            path = node_code.path_of(digest, self.ledger.directory)
            wanted = [
                {"kind": "directory", "path": os.path.dirname(path), "mode": 0o700},
                {"kind": "file", "path": path, "content": content, "mode": 0o600},
            ]
            # In check mode, a new environment has no entry.
            trees.get(stay[0], {})["code"] = digest
        staying = [entry for path, entry in trees.items() if path in stay or entry["owner"] != self.owner]
        keep = [node_code.path_of(entry["code"], self.ledger.directory) for entry in staying if "code" in entry]
        self.managed(_CODE).converge(wanted, keep=keep)

    def _enter_link(self):
        """Record the current version in the ledger.

        If the power fails before the guard's removal, the boot restores the previous version. Then the ledger is wrong.
        """
        link, current = self.ledger.entries.get(self.versions.link), self.versions.current()
        if link and current in self.names():
            link["target"] = f"versions/{current}"

    def absent(self):
        left = self.others() if self.params["left"] is None else self.params["left"]
        # After a failed first installation, the ledger lists only directories.
        if not self.ledger.of(self.owner) and not self.ledger.directories_of(self.owner):
            if os.path.isdir(self.directories):
                self._stays(
                    f"{self.ledger.path} does not list what this collection installed: run site.yml, which records it "
                    "again, then uninstall.yml"
                )
        elif left:
            self._stays("still needed to remove what is left of {}".format(" and ".join(left)))
            return
        self.managed().converge([])
        self._keep_code()

    def _stays(self, reason):
        self.report.kept.append({"path": self.root, "reason": reason})

    def others(self):
        """Return the other roles with ledger entries. Ignores environments below other roots."""
        owners = {entry.get("owner", "").partition(" ")[0] for entry in self.ledger.entries.values()}
        return sorted(owners - {"", _OWNER})

    def converge(self, state, name):
        """Converge to the state and return the report."""
        if self.node.check_mode:
            self.node.has_unshown_work = self.versions.is_open()
        else:
            self._settle()
        self._enter_link()
        if state == "present":
            self.present(name)
        elif state == "absent":
            self.absent()
        else:
            self.rolled_back(name)
        return self.report


def _edited_environment(files):
    """Return an edited environment's state for a diff; None if no file was edited."""
    if not files:
        return None
    return {"kind": "virtual environment with these changed files: " + ", ".join(few(files, _SHOWN))}


def _is_named(name, wanted):
    """Return whether ``wanted`` is this environment's full name or its version number."""
    return name == wanted or name.rpartition("-")[0] == wanted
