"""Reading back on a node that what was declared is really there: from the runtime, the kubelet and a container."""

from .report import Report
from .verify import Node, Scope, verify

__all__ = ["Node", "Report", "Scope", "verify"]
