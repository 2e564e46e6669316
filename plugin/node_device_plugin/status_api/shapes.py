"""The shapes of the plugin's answers, as in ``support.answers``. A key with ``?`` is missing in earlier releases."""

from __future__ import annotations

from typing import Any

from ..support.answers import ANY, Null, Within

# A kubelet's limits are far below. Tables have a row for each.
MOST_RESOURCES = 5000
_DEVICE: dict[Any, Any] = {
    "id": str,
    "state": str,
    "reason": Null(str),
    "withheld?": bool,
    "kubelet_ids": [str],
    "host_paths": [str],
    ...: ANY,
}
_RESOURCE: dict[Any, Any] = {
    "name": str,
    "api?": str,
    "registered": bool,
    "devices": [_DEVICE],
    "refused": {...: str},
    "left_out?": {...: str},
    "missed?": {...: str},
    "min_devices?": int,
    "late?": Null(str),
    "problem?": Null(str),
    ...: ANY,
}
#: GET /status.
STATUS: dict[Any, Any] = {
    "version": str,
    "started": Within(0, 1 << 40, float),
    "ready": bool,
    "not_ready": [str],
    "configuration": {"path": str, "sha256": str, "problems": [str], "cdi_spec_dirs?": [str], ...: ANY},
    "resources": [_RESOURCE, MOST_RESOURCES],
    ...: ANY,
}
#: Every POST.
OUTCOME: dict[Any, Any] = {"result": str, "problems": [str]}
