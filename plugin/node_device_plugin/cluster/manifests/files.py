"""Renders manifests without Ansible, from files: a configuration for each node, and a deployment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...declaration import Configuration, DeclarationError, Problem
from ...declaration.configuration_file import load
from ...declaration.names import node_name_problem
from ...support.documents import name_of, read_file, read_yaml, write_yaml
from . import DEFAULT, Manifest, parse_deployment
from . import render as render_objects

_ENDING = ".yaml"
#: File name endings that a user may mistake for a configuration's; such a file is an error.
_ALIKE = (".yml", ".json")


def render(directory: str, deployment: str) -> list[Manifest]:
    """All objects. directory: contains NODE.yaml for each node that differs, and _default.yaml for all other nodes.

    deployment: a file with the keys of DEPLOYMENT.

    Raises DeclarationError with all problems, each with the name of its file.
    """
    problems: list[Problem] = []
    configurations: dict[str, Configuration] = {}
    try:
        found = sorted(os.listdir(directory))
    except OSError as error:
        raise DeclarationError([Problem(directory, error.strerror or str(error))]) from error
    names = [name for name in found if name.endswith(_ENDING)]
    for name in found:
        if name.endswith(_ALIKE):
            problems.append(Problem(os.path.join(directory, name), f"is ignored: rename it to NODE{_ENDING}"))
    if not names:
        problems.append(
            Problem(directory, f"contains neither {DEFAULT}{_ENDING} nor NODE{_ENDING}: add a configuration")
        )
    for name in names:
        path = os.path.join(directory, name)
        node = name[: -len(_ENDING)]
        message = None if node == DEFAULT else node_name_problem(node)
        if message:
            problems.append(Problem(path, message))
            continue
        try:
            configurations[node] = load(path).configuration
        except DeclarationError as error:
            problems.extend(_in_file(path, error))
    parsed = None
    try:
        parsed = parse_deployment(_read(deployment))
    except DeclarationError as error:
        problems.extend(_in_file(name_of(deployment), error))
    if problems or parsed is None:
        raise DeclarationError(problems)
    return render_objects(parsed, configurations)


def to_yaml(manifests: Sequence[Manifest]) -> str:
    """The manifests as YAML documents, each after a comment with its reason."""
    documents = []
    for manifest in manifests:
        comment = "".join(f"# {line}\n" for line in manifest.why.split("\n"))
        documents.append("---\n" + comment + write_yaml(manifest.content))
    return "".join(documents)


def _read(path: str) -> Any:
    where = name_of(path)
    try:
        data = read_yaml(read_file(path))
    except OSError as error:
        raise DeclarationError([Problem(where, error.strerror or str(error))]) from error
    except ValueError as error:
        raise DeclarationError([Problem(where, f"is not valid YAML: {error}")]) from error
    if not isinstance(data, dict):
        raise DeclarationError([Problem(where, "must be a mapping with the key 'image'")])
    return data


def _in_file(path: str, error: DeclarationError) -> list[Problem]:
    return [
        problem if problem.where == path else Problem(f"{path}: {problem.where}", problem.message)
        for problem in error.problems
    ]
