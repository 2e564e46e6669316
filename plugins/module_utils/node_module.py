# SPDX-License-Identifier: Apache-2.0
"""What the modules that write on a node begin and end with. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import contextlib

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict, sentence
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed


@contextlib.contextmanager
def ledger_of(module):
    """The node's ledger, entered except in check mode, once the play's lock is renewed.

    What stands in the way within, ends the module with a sentence.
    """
    play_lock.renew(module)
    try:
        ledger = Ledger()
        with contextlib.nullcontext() if module.check_mode else ledger:
            yield ledger
    except (LedgerConflict, OSError) as error:
        module.fail_json(msg=sentence(error))


def managed(module, ledger, owner, pending=None):
    """The files of an owner, which get the SELinux contexts of their places."""
    return Managed(
        ledger,
        owner,
        check=module.check_mode,
        after_write=lambda path: module.set_default_selinux_context(path, False),
        pending=pending,
    )


def answer(report, **more):
    """What was done, as a module's result. more: of its result, beside the report."""
    done = {name: getattr(report, name) for name in ("changed", "written", "contents", "removed", "kept")}
    return {**done, "diff": report.diffs, **more}


def end(module, report, **more):
    """End the module with what was done, and a warning for what stays. more: as for answer."""
    for kept in report.kept:
        module.warn("kept: {path}, {reason}".format(**kept))
    module.exit_json(**answer(report, **more))
