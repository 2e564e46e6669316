"""The declaration: the only place for the schema, name rules, CDI rendering and env numbering.

Ansible imports this package on the controller, from the collection's path. So the package uses only
the standard library and Python 3.9, and imports only ``support`` from the rest of the plugin.
"""

from .model import Configuration, Device, Resource
from .parse import parse_configuration, parse_resources
from .problems import DeclarationError, Problem

__all__ = [
    "Configuration",
    "DeclarationError",
    "Device",
    "Problem",
    "Resource",
    "parse_configuration",
    "parse_resources",
]
