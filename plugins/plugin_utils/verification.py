# SPDX-License-Identifier: Apache-2.0
"""What a play says of a verification's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Without a proof, and nothing wrong: somebody holds every device, or there is no kubelet yet, or a pod had no place.
_WITHOUT_PROOF = ("unproven", "in use", "pending")


def judged(report: Mapping[str, Any], host: str, require_proof: bool) -> dict[str, Any]:
    """The report with its problems, and warnings of what is unproven.

    require_proof: whether a resource without a proof is a problem.
    """
    without = {row["resource"]: row for row in report["resources"] if row["state"] in _WITHOUT_PROOF}
    if require_proof:
        problems = [f"{name}: {row['state']}: {row['detail']}" for name, row in without.items()]
        return {**report, "problems": [*report["problems"], *problems]}
    unproven = {name: row["detail"] for name, row in without.items() if row["state"] == "unproven"}
    if not unproven:
        return dict(report)
    return {**report, "warnings": [f"{host}: {name} is unproven: {why}" for name, why in unproven.items()]}
