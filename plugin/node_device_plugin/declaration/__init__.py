"""The declaration: the only place that knows the schema, the name rules, the CDI rendering and the env numbering.

Standard library only, Python 3.9, and no import from the rest of the package, because Ansible's side imports it from
the collection's own path on the controller.
"""

from .model import Configuration, Device, Resource
from .parse import parse_configuration, parse_resources, with_resources
from .problems import DeclarationError, Problem

__all__ = [
    "Configuration",
    "DeclarationError",
    "Device",
    "Problem",
    "Resource",
    "parse_configuration",
    "parse_resources",
    "with_resources",
]
