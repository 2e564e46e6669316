"""The number of files that the process may open. Each resource needs two: its socket, and the kubelet's stream."""

from __future__ import annotations

import resource


def raise_limit() -> int:
    """Raise the soft limit, 1,024 on most nodes, to the hard limit. Returns the limit.

    The low soft limit protects programs that use select(2), which this program does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
