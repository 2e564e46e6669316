# SPDX-License-Identifier: Apache-2.0
"""The version that did not stand its trial on this node, so that not every run tries it again.

Runs on nodes: Python 3.9, standard library only. A version's name has the hash of all its content: another build of the
same version is another one, and is tried. The record is the last one's, and goes when another version takes its place.
"""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple

_NAME = "refused.json"


class FailedUpgrade(NamedTuple):
    """name: of the version. why: what it lacked. when: UTC, as ISO 8601."""

    name: str
    why: str
    when: str

    def sentence(self, current):
        """What is said of it instead of another trial. current: name of the version that runs."""
        return (
            f"version {self.name} did not stand its trial on this node at {self.when}, and is not tried again unasked: "
            f"{self.why}. Version {current} goes on. Once that is fixed, -e node_tools_retry=true tries it again; "
            "any other version is tried as ever"
        )


def now(name, why):
    """An upgrade that failed at this moment."""
    return FailedUpgrade(name, why, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def read(root):
    """The failed upgrade below a root; None where there is none, or somebody made something else of the file."""
    try:
        with open(os.path.join(root, _NAME), encoding="utf-8") as file:
            return FailedUpgrade(**{key: str(value) for key, value in json.load(file).items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def item(root, failed):
    """The file of it, as managed.Managed takes it."""
    content = (json.dumps(failed._asdict(), indent=1) + "\n").encode()
    return {"kind": "file", "path": os.path.join(root, _NAME), "content": content, "mode": 0o644}
