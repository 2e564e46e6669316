# SPDX-License-Identifier: Apache-2.0
"""What a converge function may use of the module that calls it."""

from __future__ import annotations

import contextlib

from ansible.module_utils.basic import AnsibleModule

from .. import node_code, play_lock
from ..ledger import Ledger, LedgerConflict, sentence
from ..managed import Managed


class Node:
    """The node on which a module runs. check_mode: whether nothing may be written; by default, as the module says.

    facts: what the preflight has read of the node, so that a converge function need not read it again.
    """

    def __init__(self, module, check_mode=None, facts=None):
        self._module = module
        self.facts = facts or {}
        self.check_mode = module.check_mode if check_mode is None else check_mode
        #: The warnings of the answer.
        self.warnings = []
        #: In check mode, whether a real run may do what the answer does not show, such as write a record.
        self.has_unshown_work = False

    def run_command(self, command, check_rc=False):
        """Run a command. Returns exit code, output and errors. Raises OSError if the program is missing.

        check_rc: whether to raise OSError if the command fails, too.
        """
        code, output, error = self._module.run_command(command, handle_exceptions=False)
        if code and check_rc:
            said = (error.strip() or output.strip() or "exit code %d" % code).splitlines()
            raise OSError("{}: {}".format(" ".join(command), said[-1]))
        return code, output, error

    def warn(self, warning):
        """Add a warning to the answer."""
        self.warnings.append(warning)

    def label(self, path):
        """Set a written path's default SELinux context."""
        self._module.set_default_selinux_context(path, False)

    def context_of(self, path):
        """Return a path's default SELinux context; None without SELinux."""
        return ":".join(self._module.selinux_default_context(path)) if self._module.selinux_enabled() else None

    @contextlib.contextmanager
    def ledger(self):
        """Yield the ledger. Except in check mode, the ledger is entered for writing.

        In check mode, the entries change in memory alone.
        """
        ledger = Ledger()
        with contextlib.nullcontext() if self.check_mode else ledger:
            yield ledger
        self.has_unshown_work |= self.check_mode and not ledger.is_saved

    def managed(self, ledger, owner, pending=None):
        """Return an owner's `Managed`."""
        return Managed(ledger, owner, self.label, pending)

    def answer(self, report, **more):
        """Return a report as an answer, with a warning for each path that stays. more: further keys of the answer."""
        for kept in report.kept:
            self.warn("kept: {path}, {reason}".format(**kept))
        done = {name: getattr(report, name) for name in ("changed", "written", "contents", "edited", "removed", "kept")}
        return {**done, "diff": report.diffs, **more}

    def converged(self, converge, params):
        """Return the answer of a converge function. If it refuses the node, the answer has ``problems``."""
        try:
            answer = converge(self, params)
        except LedgerConflict as error:
            answer = {"changed": False, "problems": [str(error)]}
        return {**answer, "warnings": self.warnings}


def door(file):
    """Be the module of a converge function. file: see package ``converge``."""
    module = AnsibleModule(argument_spec=file.PARAMS, supports_check_mode=True, **getattr(file, "CHECKS", {}))
    if module.params.get("code"):
        node_code.load_for(module)
    finish(module, file.converge)


def finish(module, converge):
    """Renew the play's lock, call the converge function, and exit or fail the module with its answer."""
    play_lock.renew(module)
    try:
        # A converge function adds objects to the facts, but the module's parameters are a part of its answer.
        facts = dict(module.params.get("facts") or {})
        answer = Node(module, facts=facts).converged(converge, module.params)
    except OSError as error:
        module.fail_json(msg=sentence(error))
    problems = [*answer.pop("problems", ()), *answer.get("in_use", ())]
    if problems:
        module.fail_json(msg="\n".join(problems), **answer)
    module.exit_json(**answer)
