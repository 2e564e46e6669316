"""Whether devices can be used: their nodes, their CDI names, and what a command of the user says."""

from .checks import Health, reason_of
from .nodes import unhealthy_reason

__all__ = ["Health", "reason_of", "unhealthy_reason"]
