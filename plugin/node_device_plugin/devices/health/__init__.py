"""Checks whether devices can be used: their nodes, their CDI names, and the result of a user's command."""

from .checks import Health, reason_of
from .nodes import unhealthy_reason

__all__ = ["Health", "reason_of", "unhealthy_reason"]
