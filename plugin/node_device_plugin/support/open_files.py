"""The number of files that the process may open. Each resource needs two: its socket, and the kubelet's stream."""

from __future__ import annotations

import resource

#: Enough for 30,000 resources. A pod's hard limit may be a billion, and programs that close every file would hang.
_MOST = 65536


def raise_limit() -> int:
    """Raise the soft limit, 1,024 on most nodes, to the hard limit, at most to 65,536. Returns the limit.

    The low soft limit protects programs that use select(2), which this program does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted
