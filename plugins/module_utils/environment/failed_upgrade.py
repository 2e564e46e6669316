# SPDX-License-Identifier: Apache-2.0
"""Records the version that failed its health check on this node, so that later runs do not retry it.

Runs on nodes: Python 3.9, standard library only. A version's name contains the hash of its content. Therefore another
build of the same version counts as new. The record keeps only the last failure, until another version becomes current.
"""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple

#: The record's file below the root of role node_tools.
NAME = "refused.json"


class FailedUpgrade(NamedTuple):
    """An upgrade that failed. name: the version's name. why: the missing items. when: UTC time in ISO 8601."""

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


def now(name, why):
    """Return a FailedUpgrade with the current time."""
    return FailedUpgrade(name, why, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def read(root):
    """Return the failed upgrade that a root's file records; None if the file is missing or invalid."""
    try:
        with open(os.path.join(root, NAME), encoding="utf-8") as file:
            return FailedUpgrade(**{key: str(value) for key, value in json.load(file).items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def item(root, failed):
    """Return the record's file as a wanted item of managed.Managed."""
    content = (json.dumps(failed._asdict(), indent=1) + "\n").encode()
    return {"kind": "file", "path": os.path.join(root, NAME), "content": content, "mode": 0o644}
