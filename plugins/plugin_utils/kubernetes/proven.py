# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the proof record of a node that only the API reaches. The record is an annotation of the node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, Place
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import proof_record

#: Annotation with the record. It is JSON and maps each resource to the hash of everything that affects its proof.
ANNOTATION = "nodedevices.kubernetes/proven"


def read(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the record in a node object; empty if nothing was proven yet."""
    return proof_record.read_text((node["metadata"].get("annotations") or {}).get(ANNOTATION, "{}"))


def write(api: Api, node: str, record: Mapping[str, str]) -> None:
    """Write a record; an empty record removes the annotation. Raises ApiError."""
    text = json.dumps(dict(record), sort_keys=True) if record else None
    api.merge(Place("nodes", node), {"metadata": {"annotations": {ANNOTATION: text}}})
