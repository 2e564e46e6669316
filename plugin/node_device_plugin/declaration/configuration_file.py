"""The plugin's configuration file: read, checked as a whole, and known by its hash."""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import Any, NamedTuple

from ..support.documents import read_json, read_yaml
from . import Configuration, DeclarationError, Problem, parse_configuration, schema

_LEADING_COMMENTS = re.compile(rb"\A(?:[ \t]*#[^\n]*\n)*")
# JSON takes half of such a pair for a character, which can then be written nowhere.
_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

#: Where the role device_plugin writes it.
DEFAULT_PATH = "/etc/node-device-plugin/config.yaml"


class LoadedConfiguration(NamedTuple):
    """A configuration and the SHA-256 (hexadecimal) of the bytes that it was read from."""

    configuration: Configuration
    sha256: str


def load(path: str) -> LoadedConfiguration:
    """Read and check a configuration file (YAML, or JSON as a part of it).

    Raises DeclarationError with every problem, each with the path of its field; where the file cannot be read or is no
    YAML, with one problem that names the file, and line and column where they are known. The answer depends on the file
    alone, not on who reads it.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise DeclarationError([Problem(path, error.strerror or str(error))]) from error
    try:
        data = _read(content)
    except ValueError as error:
        raise DeclarationError([Problem(path, "is not valid YAML: {}".format(" ".join(str(error).split())))]) from error
    return LoadedConfiguration(parse_configuration(data), hashlib.sha256(content).hexdigest())


def sha256_of(path: str) -> str:
    """The SHA-256 (hexadecimal) of a configuration file as it is now; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _read(content: bytes) -> Any:
    """JSON below comments, as the role writes it, in a tenth of the time; else YAML. Raises ValueError."""
    if not _LONE_SURROGATE.search(content):
        with contextlib.suppress(ValueError, RecursionError):
            return read_json(_LEADING_COMMENTS.sub(b"", content, count=1))
    return read_yaml(content)


class KubeletPlaces(NamedTuple):
    """The kubelet's directories: for device plugins, and its root (--root-dir)."""

    device_plugin_dir: str
    root_dir: str


def kubelet_places(path: str) -> KubeletPlaces:
    """The kubelet's directories by a configuration file; the usual ones where it does not name them, or is no YAML.

    Whatever else is wrong with the file: a plugin can be asked that goes on with an older configuration.
    """
    data = None
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        data = _read(file.read())
    named = data if isinstance(data, dict) else {}

    def place(key: str) -> str:
        value = named.get(key)
        return value if isinstance(value, str) else str(schema.CONFIGURATION[key].default)

    return KubeletPlaces(place("kubelet_device_plugin_dir"), place("kubelet_root_dir"))
