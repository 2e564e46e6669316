"""What can be said of a command line in a page without running it, and whether CI runs it."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator

import the_project as project

from node_device_plugin.cli import main as command_line

#: What a block may need that is not there where the tests run. Whoever adds one says here what it is.
NEEDS = {
    "a container engine": "podman or docker, as root; make test-all does the same under other names",
    "the lab": "the nodes that make lab has booted",
    "nodes of your own": "an inventory and machines of the reader's",
    "a provisioned node": "a node on which site.yml has run",
    "a cluster": "an API server, and kubectl or kind",
    "a bundle": "what make bundle has written, or a controller that was set up from it",
    "a release": "what make release has written; make release-check runs these commands",
    "a GPU": "NVIDIA's driver and toolkit; make journeys runs the toolkit on a node without a driver, as for Tegra",
    "a report": "what status.yml has written",
}
#: Programs of others that a block may call; what they are called with is not looked at, but for paths of the checkout.
OTHERS = {
    "alias",
    "ansible-navigator",
    "apt-get",
    "cat",
    "cp",
    "ctr",
    "helm",
    "jq",
    "kind",
    "kubectl",
    "ln",
    "mkdir",
    "molecule",
    "nvidia-ctk",
    "pip",
    "podman",
    "python3",
    "rm",
    "sha256sum",
    "sleep",
    "tar",
}

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
_OPERATORS = {";", "|", "||", "&&", "&"}
#: What a bundle is unpacked to; its programs are those of the folder packaging/bundle/.
_BUNDLE = re.compile(r"node-devices-(\d[^/]*)/([^/]+)")
_ENGINE = ("engine", "lab/roles/lab_node/files/engine")


#: A simple command, a word each.
Command = tuple[str, ...]


def commands(text: str) -> Iterator[Command]:
    """The simple commands of a block of shell, without where they read from and write to."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>")
        lexer.whitespace_split = True
        words: list[str] = []
        tokens = iter(lexer)
        for token in tokens:
            if token in _OPERATORS:
                if words:
                    yield tuple(words)
                words = []
            elif token.startswith((">", "<")):
                next(tokens, "")
            else:
                words.append(token)
        if words:
            yield tuple(words)


def without_assignments(words: Command) -> tuple[dict[str, str], Command]:
    given = {}
    while words and (match := _ASSIGNMENT.match(words[0])):
        given[match.group(1)] = words[0][match.end() :]
        words = words[1:]
    return given, words


def program_of(words: Command) -> tuple[str, Command]:
    """The program's name, without the virtual environment that it is in, and its arguments."""
    return (re.sub(r"^(\.venv|\$\w+)/bin/", "", words[0]), words[1:]) if words else ("", ())


def problems(command: Command) -> Iterator[str]:
    """A sentence for everything that the command names and that is not there."""
    given, words = without_assignments(command)
    program, arguments = program_of(words)
    # Without a command they are the shell's own, for the lines that follow.
    for name in given if program else ():
        if not project.is_environment_variable(name):
            yield f"nothing reads the variable {name}"
    for word in arguments:
        path = word.removeprefix("$PWD/")
        if "/" in path and path.partition("/")[0] in project.top_level_directories() and not project.is_there(path):
            yield f"there is no {path}"
    if program == "make":
        yield from _make(arguments)
    elif program == "ansible-builder":
        yield from _builder(arguments)
    elif program.startswith("ansible") and program not in OTHERS:
        yield from _ansible(program, arguments)
    elif program == "node-device-plugin":
        yield from _refused(lambda given: command_line.parser().parse_args(given), arguments)
    elif bundled := _BUNDLE.fullmatch(program):
        if bundled.group(1) != project.version():
            yield f"this is version {project.version()}, not {bundled.group(1)}"
        if not project.is_there(f"packaging/bundle/{bundled.group(2)}"):
            yield f"a bundle has no {bundled.group(2)}"
    elif program in _ENGINE:
        yield from _engine(arguments)
    elif program and program.removeprefix(".lab/bin/") not in OTHERS:
        yield f"{program} is no program that a page may call (command_lines.OTHERS)"


def is_run_by_ci(command: Command) -> bool:
    """Whether CI runs it: a command of the README, a make target that `make test-all` makes, or our command, which a
    test runs."""
    if " ".join(command) in project.newcomer_lines():
        return True
    given, words = without_assignments(command)
    program, arguments = program_of(words)
    if not program:
        return True
    if program == "make":
        return not given and bool(arguments) and all(word in project.in_ci() for word in arguments)
    return program == "node-device-plugin" and not given


def _make(arguments: Command) -> Iterator[str]:
    for word in arguments:
        variable = _ASSIGNMENT.match(word)
        if variable and variable.group(1) not in project.make_variables():
            yield f"the Makefile has no variable {variable.group(1)}"
        elif not variable and word not in project.targets():
            yield f"the Makefile has no target {word}"


def _engine(arguments: Command) -> Iterator[str]:
    if arguments[:1] != ("exec",):
        return
    rest = list(arguments[1:])
    while rest and rest[0].startswith("-"):
        rest.pop(0)
    if rest[1:2] == ["node-device-plugin"]:
        yield from problems(tuple(rest[1:]))


def _refused(parse: Callable[[Command], argparse.Namespace], arguments: Command) -> Iterator[str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parse(arguments)
    except SystemExit as error:
        if error.code:
            yield said.getvalue().strip().splitlines()[-1]


def _builder(arguments: Command) -> Iterator[str]:
    from ansible_builder import cli

    yield from _refused(cli.parse_args, arguments)


def _ansible(program: str, arguments: Command) -> Iterator[str]:
    # Imported here, because it takes as long as the rest together.
    from ansible.cli import adhoc, doc, galaxy, inventory, playbook

    known = {
        "ansible": adhoc.AdHocCLI,
        "ansible-doc": doc.DocCLI,
        "ansible-galaxy": galaxy.GalaxyCLI,
        "ansible-inventory": inventory.InventoryCLI,
        "ansible-playbook": playbook.PlaybookCLI,
    }
    if program not in known:
        yield f"there is no {program}"
        return

    def parser() -> argparse.ArgumentParser:
        cli = known[program]([program, *arguments])
        cli.init_parser()
        return cli.parser

    refused = list(_refused(lambda given: parser().parse_args(given), arguments))
    yield from refused
    if program == "ansible-playbook" and not refused:
        yield from _played(parser().parse_args(arguments))


def _played(options: argparse.Namespace) -> Iterator[str]:
    for name in options.args:
        if name not in project.playbook_names():
            yield f"there is no playbook {name}"
        elif project.playbook_names()[name] not in project.played_by_scenarios():
            yield f"no scenario plays {name}"
    for given in options.extra_vars or ():
        for variable in re.findall(r"([A-Za-z_]\w*)(?==)", given):
            if not project.is_variable(variable):
                yield f"there is no variable {variable}"
    for tag in {each for tags in [*(options.tags or ()), *(options.skip_tags or ())] for each in tags.split(",")}:
        if tag not in {*project.tags(), "all"}:
            yield f"there is no tag {tag}"
