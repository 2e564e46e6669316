# SPDX-License-Identifier: Apache-2.0
"""Converts a verification's report into a task's problems and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# States without a proof that are not errors. Causes: no pod was scheduled, pods hold all devices, or no kubelet runs.
_WITHOUT_PROOF = ("unproven", "in use", "pending")


def judged(report: Mapping[str, Any], host: str, require_proof: bool) -> dict[str, Any]:
    """Return the report with the report's warnings and a warning for each unproven resource.

    require_proof: whether each resource without a proof is a problem instead of a warning.
    """
    # An earlier release's plugin reports no warnings.
    warnings = [f"{host}: {warning}" for warning in report.get("warnings", ())]
    without = {row["resource"]: row for row in report["resources"] if row["state"] in _WITHOUT_PROOF}
    if require_proof:
        problems = [f"{name}: {row['state']}: {row['detail']}" for name, row in without.items()]
        return {**_with(report, warnings), "problems": [*report["problems"], *problems]}
    unproven = {name: row["detail"] for name, row in without.items() if row["state"] == "unproven"}
    return _with(report, [*warnings, *(f"{host}: {name} is unproven: {why}" for name, why in unproven.items())])


def _with(report: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    # Omit an empty list of warnings, because Ansible would print it.
    result = {name: value for name, value in report.items() if name != "warnings"}
    return {**result, "warnings": warnings} if warnings else result
