# SPDX-License-Identifier: Apache-2.0
"""Opens the ledger and ends a module, for modules that write on a node.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict, sentence
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed


@contextlib.contextmanager
def ledger_of(module):
    """Renew the play's lock and yield the node's ledger. Except in check mode, the ledger is entered for writing.

    If the block raises LedgerConflict or OSError, the module fails with a message.
    """
    play_lock.renew(module)
    try:
        ledger = Ledger()
        with contextlib.nullcontext() if module.check_mode else ledger:
            yield ledger
    except (LedgerConflict, OSError) as error:
        module.fail_json(msg=sentence(error))


def managed(module, ledger, owner, pending=None):
    """Return an owner's `Managed`, which sets each written path's default SELinux context."""
    return Managed(
        ledger,
        owner,
        check=module.check_mode,
        after_write=lambda path: module.set_default_selinux_context(path, False),
        pending=pending,
    )


def answer(report, **more):
    """Return a report as a module's result. more: further keys of the result."""
    done = {name: getattr(report, name) for name in ("changed", "written", "contents", "removed", "kept")}
    return {**done, "diff": report.diffs, **more}


def end(module, report, **more):
    """Exit the module with a report, and warn about each path that stays. more: as in `answer`."""
    for kept in report.kept:
        module.warn("kept: {path}, {reason}".format(**kept))
    module.exit_json(**answer(report, **more))
