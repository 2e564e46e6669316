"""Checks whether devices can be used: their nodes, their CDI names, and the result of a user's command."""

from .cdi_names import CdiNames
from .checks import Health, host_problem, problem_of, reason_of
from .nodes import unhealthy_reason

__all__ = ["CdiNames", "Health", "host_problem", "problem_of", "reason_of", "unhealthy_reason"]
