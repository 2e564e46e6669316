"""Reads and checks the plugin's configuration file, and identifies its content by a hash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..support.documents import name_of, read_file, read_json, read_yaml
from . import Configuration, DeclarationError, Problem, parse_configuration, schema

_LEADING_COMMENTS = re.compile(rb"\A(?:[ \t]*#[^\n]*\n)*")
# JSON accepts half of a surrogate pair, but UTF-8 cannot encode such a character.
_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PLACEHOLDER = re.compile(r"\{\w+\}")

#: The path to which the role device_plugin writes the file.
DEFAULT_PATH = "/etc/node-device-plugin/config.yaml"
_BY_ROLE = (
    "Written by Ansible (nodedevices.kubernetes.device_plugin) from the declaration: changes here are overwritten."
)


class Source(NamedTuple):
    """Where the plugin reads its configuration.

    path: the file of this node. default: the file that counts if this node has no file of its own, such as a profile's;
    empty for none.
    """

    path: str
    default: str = ""

    @property
    def chosen(self) -> str:
        """The file that counts now."""
        return self.default if self.default and not os.path.lexists(self.path) else self.path

    def load(self) -> LoadedConfiguration:
        """Read and check the file that counts now. Raises DeclarationError as the function load does."""
        try:
            return load(self.chosen)
        except DeclarationError:
            if not self.default or any(map(os.path.lexists, self)):
                raise
        key, default = map(os.path.basename, self)
        fix = f"add the key {key} or {default} to the ConfigMap, or take the label that selects the pod's node from it"
        raise DeclarationError([Problem(self.path, f"is missing, and so is the default {self.default}: {fix}")])


class LoadedConfiguration(NamedTuple):
    """A configuration and the SHA-256 (hexadecimal) of the file's bytes."""

    configuration: Configuration
    sha256: str


def text(configuration: Mapping[str, Any], comment: str = _BY_ROLE) -> str:
    """The text of a configuration file; equal configurations give equal text.

    The text is JSON after a comment, because JSON is parsed ten times as fast as YAML. configuration: as data.
    """
    return f"# {comment}\n{json.dumps(configuration, indent=2, ensure_ascii=False)}\n"


def load(path: str) -> LoadedConfiguration:
    """Read and check a configuration file (YAML, of which JSON is a part); ``-`` is stdin.

    Raises DeclarationError with every problem, each with the path of its field. If the file cannot
    be read or is not YAML, the result is one problem, with the file and, if known, line and column.
    """
    content = _content(path)
    return LoadedConfiguration(parse_configuration(_document(content, path)), hashlib.sha256(content).hexdigest())


def document(path: str) -> dict[Any, Any]:
    """The data in a file, without a check of its keys. Raises DeclarationError as load does."""
    return _document(_content(path), path)


def _content(path: str) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise DeclarationError([Problem(name_of(path), error.strerror or str(error))]) from error


def _document(content: bytes, path: str) -> dict[Any, Any]:
    where = name_of(path)
    try:
        data = _read(content)
    except ValueError as error:
        message = f"is not valid YAML: {error}{_hint(content, str(error))}"
        raise DeclarationError([Problem(where, message)]) from error
    if not isinstance(data, dict):
        found = "is empty" if data is None else "is not a mapping"
        raise DeclarationError([Problem(where, f"{found}: list the plugin's resources below the key 'resources'")])
    return data


def sha256_of(path: str) -> str:
    """The SHA-256 (hexadecimal) of a configuration file; empty if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _read(content: bytes) -> Any:
    """Parse JSON after leading comments (the role's format), or else YAML, which is slower. Raises ValueError."""
    if not _LONE_SURROGATE.search(content):
        with contextlib.suppress(ValueError, RecursionError):
            return read_json(_LEADING_COMMENTS.sub(b"", content, count=1))
    return read_yaml(content)


def _hint(content: bytes, message: str) -> str:
    """Advice on a tag, on the encoding, or on a placeholder at the place of an error.

    YAML reads a brace without quotes as a mapping.
    """
    if "constructor for the tag '!" in message:
        return "; if it is Ansible's, check the inventory with playbooks/validate.yml"
    marks = re.findall(r"line (\d+), column (\d+)", message)
    text = content.decode("utf-8", "replace")
    if not marks:
        return "" if text.encode() == content else "; save the file as UTF-8"
    line, column = map(int, marks[-1])
    marked = "".join(text.splitlines()[line - 1 : line])
    before = [match.group() for match in _PLACEHOLDER.finditer(marked) if match.start() < column]
    return f"; write the text with {before[-1]} in quotes" if before else ""


class KubeletPlaces(NamedTuple):
    """The kubelet's directory for device plugins and its root directory (--root-dir).

    cdi_dir: the directory of the plugin's CDI specs and of its records of prepared claims.
    """

    device_plugin_dir: str
    root_dir: str
    cdi_dir: str


def kubelet_places(path: str) -> KubeletPlaces:
    """The kubelet's directories in a configuration file.

    If a key is missing or the file is unreadable or not YAML, returns the defaults. Other errors do
    not matter, because a plugin that runs with an older configuration can still answer.
    """
    data = None
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        data = _read(file.read())
    named = data if isinstance(data, dict) else {}

    def place(key: str) -> str:
        value = named.get(key)
        return value if isinstance(value, str) else str(schema.CONFIGURATION[key].default)

    return KubeletPlaces(place("kubelet_device_plugin_dir"), place("kubelet_root_dir"), place("dynamic_cdi_dir"))
