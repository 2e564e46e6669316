# SPDX-License-Identifier: Apache-2.0
"""What was proven of a node that only the API reaches: an annotation of its node object, which goes with the node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, Place
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import proof_record

#: Resource to the hash of all that its proof depended on, as JSON.
ANNOTATION = "nodedevices.kubernetes/proven"


def read(node: Mapping[str, Any]) -> dict[str, str]:
    """Of a node object; empty where nothing was proven yet."""
    return proof_record.read_text((node["metadata"].get("annotations") or {}).get(ANNOTATION, "{}"))


def write(api: Api, node: str, record: Mapping[str, str], dry_run: bool = False) -> None:
    """Keep a record, or none where it is empty. Raises ApiError."""
    text = json.dumps(dict(record), sort_keys=True) if record else None
    api.merge(Place("nodes", node), {"metadata": {"annotations": {ANNOTATION: text}}}, dry_run)
