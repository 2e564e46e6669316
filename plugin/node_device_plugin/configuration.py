"""The plugin's configuration file: read, checked as a whole, and known by its hash."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import yaml

from .declaration import Configuration, DeclarationError, Problem, parse_configuration, schema
from .health.privileges import open_probe_problems

# libyaml reads ten times as fast: half a second of a start with 1,000 devices. Not every build of PyYAML has it.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Levels of lists and mappings; the schema has about ten.
_DEEPEST = 50

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
        data = _read(content)
    except (yaml.YAMLError, ValueError) as error:
        raise DeclarationError([Problem(path, "is not valid YAML: %s" % " ".join(str(error).split()))]) from error
    configuration = parse_configuration(data)
    problems = list(open_probe_problems(configuration))
    if problems:
        raise DeclarationError(problems)
    return LoadedConfiguration(configuration, hashlib.sha256(content).hexdigest())


def _read(content: bytes) -> Any:
    """Raises yaml.YAMLError and ValueError."""
    depth = 0
    # Before it is composed: libyaml's binding recurses on the C stack, and tens of thousands of levels end the process.
    for event in yaml.parse(content, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise ValueError("it nests more than %d levels deep" % _DEEPEST)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return yaml.load(content, Loader=_Loader)


def directory_of(path: str) -> str:
    """The kubelet's device plugin directory by a configuration file; the usual one where the file cannot be used.

    So that a plugin can be asked which goes on with an older configuration.
    """
    try:
        return load(path).configuration.kubelet_device_plugin_dir
    except DeclarationError:
        return str(schema.CONFIGURATION["kubelet_device_plugin_dir"].default)
