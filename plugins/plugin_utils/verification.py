# SPDX-License-Identifier: Apache-2.0
"""Turns a verification's report into a task's problems and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# States without a proof that are not errors: no pod was placed, pods hold every device, or no
# kubelet runs yet.
_WITHOUT_PROOF = ("unproven", "in use", "pending")


def judged(report: Mapping[str, Any], host: str, require_proof: bool) -> dict[str, Any]:
    """The report, with a warning for each unproven resource.

    require_proof: whether each resource without a proof is a problem; there are then no warnings.
    """
    without = {row["resource"]: row for row in report["resources"] if row["state"] in _WITHOUT_PROOF}
    if require_proof:
        problems = [f"{name}: {row['state']}: {row['detail']}" for name, row in without.items()]
        return {**report, "problems": [*report["problems"], *problems]}
    unproven = {name: row["detail"] for name, row in without.items() if row["state"] == "unproven"}
    if not unproven:
        return dict(report)
    return {**report, "warnings": [f"{host}: {name} is unproven: {why}" for name, why in unproven.items()]}
