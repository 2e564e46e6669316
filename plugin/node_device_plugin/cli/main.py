"""The entry point. Exit codes: 0 (success), 1 (problem or failure), 2 (wrong usage), 130 (interrupted)."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NoReturn

from ..declaration import DeclarationError
from ..support.version import version
from .shared import EXIT_CODES, Command, Failure, command, option

#: The module of each command by the command's first word, in the order of the help.
_MODULES: Mapping[str, str] = {
    "run": "run",
    "reload": "run",
    "validate": "validate",
    "schema": "validate",
    "scan": "discover",
    "discover": "discover",
    "manifests": "manifests",
    "capacities": "capacities_restore",
    "cdi": "cdi",
    "runtime": "status",
    "holders": "holders",
    "status": "status",
    "doctor": "status",
    "verify": "verify",
    "seen": "verify",
    "help": "main",
    "version": "main",
}
#: The first words that have a second word, with their descriptions.
_GROUPS: Mapping[str, Mapping[str, Any]] = {
    "capacities": {"description": "Manage fixed capacities (role extended_resources)."},
    "cdi": {"help": "Manage CDI specs."},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        try:
            return _main(arguments)
        finally:
            # Flush here: if the flush at exit failed, Python would print its own message.
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe. This is not an error.
        pass
    except OSError as error:
        where = f"{error.filename}: " if error.filename else "the command failed: "
        print(f"node-device-plugin: {where}{error.strerror or error}", file=sys.stderr)
    with contextlib.suppress(AttributeError, OSError, ValueError):
        # Python flushes stdout again at exit, so redirect it to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _main(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    options = parser(words[0] if words else "").parse_args(words)
    run: Callable[[argparse.Namespace], int] = options.command
    try:
        return run(options)
    except DeclarationError as error:
        for problem in error.problems:
            print(f"node-device-plugin: {problem!s}", file=sys.stderr)
    except Failure as error:
        print(f"node-device-plugin: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


class _Parser(argparse.ArgumentParser):
    """Reports an error with the usage of the failed command, and proposes the correct spelling of a mistyped word."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}; see '{self.prog} --help'\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            # argparse would report an unknown option of a command with the usage of the whole program.
            proposed = _proposal(unknown[0].partition("=")[0], self._option_string_actions)
            self.error("unrecognized arguments: {}{}".format(" ".join(unknown), proposed))
        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            # Do not propose internal commands: _choices_actions does not contain them.
            listed = [each.dest for each in getattr(action, "_choices_actions", ())] or list(action.choices)
            proposed = _proposal(value, listed) or " (choose from {})".format(", ".join(map(str, listed)))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{proposed}")


def _proposal(word: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


class _Version(argparse.Action):
    """Prints the version. argparse's own action would look up the version at every start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        version_command.run(argparse.Namespace())
        parser.exit()


@command(
    "help",
    option("words", metavar="COMMAND", nargs="*", help="command to explain (default: all)"),
    examples=("help", "help cdi check"),
)
def help_command(options: argparse.Namespace) -> int:
    """Print the help of a command."""
    parser().parse_args([*options.words, "--help"])
    return 0


@command("version", examples=("version",))
def version_command(options: argparse.Namespace) -> int:
    """Print the version."""
    print(f"node-device-plugin {version()}")
    return 0


def parser(only: str = "") -> argparse.ArgumentParser:
    """The parser of all commands and their options.

    only: the first word of the only command to add, if it is one. All commands take a tenth of the plugin's start.
    """
    parsed = _Parser(
        prog="node-device-plugin", description="Serve a node's devices to its kubelet by CDI.", epilog=EXIT_CODES
    )
    parsed.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parsed.add_subparsers(metavar="COMMAND", required=True)
    for word in [only] if only in _MODULES else _MODULES:
        into: Any = commands
        if word in _GROUPS:
            into = commands.add_parser(word, **_GROUPS[word]).add_subparsers(metavar="COMMAND", required=True)
        module = importlib.import_module("." + _MODULES[word], __package__)
        for each in vars(module).values():
            if isinstance(each, Command) and each.words[0] == word:
                into.add_parser(each.words[-1], **each.parser).set_defaults(command=each.run)
    return parsed
