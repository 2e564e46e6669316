"""The plugin's configuration file: read, checked as a whole, and known by its hash."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import yaml

from .declaration import Configuration, DeclarationError, Problem, parse_configuration

#: Where the role device_plugin writes it.
DEFAULT_PATH = "/etc/node-device-plugin/config.yaml"


class LoadedConfiguration(NamedTuple):
    """A configuration and the SHA-256 (hexadecimal) of the bytes that it was read from."""

    configuration: Configuration
    sha256: str


def load(path: str) -> LoadedConfiguration:
    """Read and check a configuration file (YAML, or JSON as a part of it).

    Raises DeclarationError with every problem, each with the path of its field; where the file cannot be read or is no
    YAML, with one problem that names the file, and line and column where they are known.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise DeclarationError([Problem(path, error.strerror or str(error))]) from error
    try:
        data = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DeclarationError([Problem(path, "is not valid YAML: %s" % " ".join(str(error).split()))]) from error
    return LoadedConfiguration(parse_configuration(data), hashlib.sha256(content).hexdigest())
