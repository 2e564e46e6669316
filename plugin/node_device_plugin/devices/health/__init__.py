"""Checks whether devices can be used: their nodes, their CDI names, and the result of a user's command."""

from .cdi_names import CdiNames
from .checks import Health, problem_of, problem_of_edits, reason_of
from .nodes import unhealthy_reason

__all__ = ["CdiNames", "Health", "problem_of", "problem_of_edits", "reason_of", "unhealthy_reason"]
