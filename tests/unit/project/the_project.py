"""What there is that a page may name: make targets, playbooks, variables, tags, paths."""

from __future__ import annotations

import functools
import importlib.machinery
import pathlib
import re
import subprocess
import tomllib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml
from documented_blocks import PAGES, ROOT, blocks, text_of

_TARGET = re.compile(r"^([a-z][a-z-]*(?: [a-z][a-z-]*)*):(?!=)(.*)$")


class Target(NamedTuple):
    """leads_to: its prerequisites, and what its recipe calls make for."""

    leads_to: frozenset[str]


def targets_of(makefile: str) -> dict[str, Target]:
    """Every target of a Makefile."""
    found: dict[str, set[str]] = {}
    current: list[str] = []
    for line in makefile.replace("\\\n", " ").splitlines():
        match = _TARGET.match(line)
        if match:
            current = match.group(1).split()
            for name in current:
                found.setdefault(name, set()).update(match.group(2).split("#")[0].split())
        elif line.startswith("\t") and "$(MAKE)" in line:
            for name in current:
                found[name].update(re.findall(r"(?<=\s)[a-z][a-z_-]*", line.partition("$(MAKE)")[2]))
        elif not line.startswith("\t"):
            current = []
    return {name: Target(frozenset(leads_to)) for name, leads_to in found.items()}


def reached_from(start: str, targets: Mapping[str, Target]) -> set[str]:
    """A target, and all that making it makes."""
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        name = ahead.pop()
        if name in targets and name not in reached:
            reached.add(name)
            ahead += targets[name].leads_to
    return reached


@functools.cache
def targets() -> dict[str, Target]:
    found = targets_of((ROOT / "Makefile").read_text(encoding="utf-8"))
    # Its one pattern: a target for each scenario.
    scenarios = (path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))
    found.update({f"scenario-{name}": Target(frozenset()) for name in scenarios})
    # tests/newcomer makes what the README says.
    made = [line.split()[1:] for line in newcomer_lines() if line.startswith("make ")]
    return {**found, "newcomer": Target(frozenset(word for words in made for word in words))}


@functools.cache
def newcomer_lines() -> list[str]:
    """The README's commands, which tests/newcomer runs."""
    return [command.line for command in newcomer().commands()]


def newcomer() -> Any:
    return program("tests/newcomer")


@functools.cache
def program(path: str) -> Any:
    """A program of the checkout, as a module."""
    loader = importlib.machinery.SourceFileLoader(pathlib.Path(path).name, str(ROOT / path))
    module = types.ModuleType(loader.name)
    module.__file__ = loader.path
    loader.exec_module(module)
    return module


@functools.cache
def in_ci() -> set[str]:
    """The make targets that CI makes: .ci/run says where it begins."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (start,) = re.findall(r"^(?:exec )?make (\S+)$", script, re.M)
    return reached_from(start, targets())


@functools.cache
def make_variables() -> set[str]:
    """What can be given to make on its command line."""
    return set(re.findall(r"\$\((?:if \$\()?([A-Z_]+)\)", (ROOT / "Makefile").read_text(encoding="utf-8")))


@functools.cache
def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@functools.cache
def sources() -> str:
    """Everything that is run, and is no page."""
    places = (
        "Makefile",
        "packaging/image/",
        "lab/",
        "molecule/",
        "playbooks/",
        "plugin/",
        "plugins/",
        "roles/",
        "tests/runtimes/",
        "tools/",
    )
    texts = []
    for path in tracked():
        if path.startswith(places) and not path.endswith((".md", ".json")) and (ROOT / path).is_file():
            texts.append((ROOT / path).read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


@functools.cache
def version() -> str:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert isinstance(found, str)
    return found


def is_environment_variable(name: str) -> bool:
    """Whether something here reads it."""
    return re.search(rf"\b{name}\b", sources()) is not None


@functools.cache
def playbooks() -> set[str]:
    return set(playbook_names().values())


@functools.cache
def playbook_names() -> dict[str, str]:
    """What a playbook can be called by, its path or its name in a collection, to its file's name."""
    names = {}
    for directory, collection in (("playbooks", "nodedevices.kubernetes"), ("lab/playbooks", "nodedevices.lab")):
        for path in (ROOT / directory).glob("*.yml"):
            names[f"{directory}/{path.name}"] = names[f"{collection}.{path.stem}"] = path.name
    return names


@functools.cache
def played_by_scenarios() -> set[str]:
    """The playbooks that some molecule scenario runs, by path or by name."""
    text = "\n".join(
        (ROOT / path).read_text(encoding="utf-8")
        for path in tracked()
        if path.startswith("molecule/") and path.endswith(".yml") and (ROOT / path).is_file()
    )
    return {name for name in playbooks() if re.search(rf"(playbooks/|playbook: ){name}\b", text)}


@functools.cache
def roles() -> list[pathlib.Path]:
    """The directories of all roles, of both collections."""
    return [role for place in ("roles", "lab/roles") for role in sorted((ROOT / place).iterdir()) if role.is_dir()]


@functools.cache
def role_variables() -> set[str]:
    names: set[str] = set()
    for path in [role / "meta/argument_specs.yml" for role in roles()]:
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            names |= entry["options"].keys()
    return names


@functools.cache
def playbook_variables() -> set[str]:
    """What the playbooks take from an inventory or from -e, beside the roles' variables."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "playbooks").rglob("*.yml")))
    made = set(re.findall(r"^ +(?:register: )?(node_devices_\w+)\b:?", text, re.M))
    names = set(re.findall(r"\b(node_devices_\w+) \| default\(", text)) - made
    return {name for name in names if not name.startswith("node_devices_default_")} - role_variables()


def is_variable(name: str) -> bool:
    """Whether a variable of this project's names is one. Names of others are others' concern."""
    if not name.startswith(("node_devices_", *(f"{role.name}_" for role in roles()))):
        return True
    return name.startswith("node_devices_resources") or name in (
        role_variables()
        | playbook_variables()
        | {"node_devices_hosts", "node_devices_serial", "node_devices_max_fail_percentage"}
    )


@functools.cache
def tags() -> set[str]:
    found: set[str] = set()
    for path in [*ROOT.glob("playbooks/**/*.yml"), *(path for role in roles() for path in role.glob("tasks/*.yml"))]:
        for listed in re.findall(r"tags: \[([^\]]*)\]", path.read_text(encoding="utf-8")):
            found |= {tag.strip() for tag in listed.split(",")}
    return found - {"always"}


@functools.cache
def made_by_pages() -> set[str]:
    """Paths that a reader has made by then: copied, made as a folder, or written from a block with a name."""
    made: set[str] = set()
    for page in PAGES:
        for block in blocks(text_of(page)):
            if block.file:
                made.add(block.file)
            for line in block.text.splitlines() if block.language == "sh" else ():
                words = line.partition(" #")[0].split()
                if words[:1] in (["cp"], ["ln"]):
                    made.add(words[-1])
                elif words[:1] == ["mkdir"]:
                    made.update(word for word in words[1:] if not word.startswith("-"))
    return made


def is_there(path: str) -> bool:
    """Whether a path of the checkout is in it, or made by a reader before."""
    if (ROOT / path).exists():
        return True
    return any(path == made or path.startswith(f"{made}/") or made.startswith(f"{path}/") for made in made_by_pages())


@functools.cache
def top_level_directories() -> set[str]:
    return {path.partition("/")[0] for path in tracked() if "/" in path}
