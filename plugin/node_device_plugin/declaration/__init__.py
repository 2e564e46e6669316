"""The declaration: the only package with the schema, the name rules, the CDI rendering and the env numbering.

It uses only the standard library and Python 3.9, because Ansible imports it on the controller from the collection's
path. Of the rest of the package it imports only ``support``.
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
