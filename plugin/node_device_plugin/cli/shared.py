"""Shared parts of the commands: options, questions to the node, and output as text or JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any, Callable, NamedTuple, Protocol, TypeVar

from ..declaration.configuration_file import DEFAULT_PATH
from ..support.sockets import RUNTIME_SOCKET

DEFAULT_KUBELET_ROOT = "/var/lib/kubelet"
EXIT_CODES = "Exit codes: 0, no problem; 1, a problem was found or the command failed; 2, wrong usage."

_Answer = TypeVar("_Answer")


class Failure(Exception):
    """A command failed: the message is one sentence for the user; the exit code is 1."""


class _Shown(Protocol):
    def to_data(self) -> Any:
        """The answer, ready for JSON."""

    def to_text(self) -> str:
        """The answer as text."""


def option(*names: str, **keywords: Any) -> argparse.ArgumentParser:
    """An option or a positional argument, with the parameters of argparse's add_argument."""
    added = argparse.ArgumentParser(add_help=False)
    added.add_argument(*names, **keywords)
    return added


CONFIG = option("--config", metavar="FILE", default=DEFAULT_PATH, help="configuration file (default: %(default)s)")
OUTPUT = option("-o", "--output", choices=("text", "json"), default="text", help="output format (default: %(default)s)")
RUNTIME = option(
    "--socket", metavar="PATH", default=RUNTIME_SOCKET, help="the runtime's CRI socket (default: %(default)s)"
)
KUBELET = option(
    "--kubelet-root",
    metavar="DIR",
    default=DEFAULT_KUBELET_ROOT,
    help="the kubelet's --root-dir (default: %(default)s)",
)
DEVICE_PLUGIN_DIR = option(
    "--device-plugin-dir",
    metavar="DIR",
    default=DEFAULT_KUBELET_ROOT + "/device-plugins",
    help="the kubelet's device plugin directory, whose checkpoint is read if no kubelet answers (default: %(default)s)",
)


class Command(NamedTuple):
    """A command. run: takes the options and returns the exit code; its docstring is the command's help."""

    run: Callable[[argparse.Namespace], int]
    name: str
    options: Sequence[argparse.ArgumentParser]

    def add(self, commands: Any) -> None:
        """Add the command. commands: argparse's sub-commands, which have no public type."""
        help = self.run.__doc__
        added = commands.add_parser(self.name, help=help, description=help, epilog=EXIT_CODES, parents=self.options)
        added.set_defaults(command=self.run)


def command(name: str, *options: argparse.ArgumentParser) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Turn the decorated function into a command; the function's docstring is the command's help."""
    return lambda run: Command(run, name, options)


def ask(question: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a command's query. Raises Failure, with one sentence, if the node cannot answer."""
    from ..kubelet.checkpoint import CheckpointError
    from ..runtime.errors import CriError
    from ..support.bounded_calls import NoAnswer

    try:
        return asyncio.run(question)
    except (CriError, CheckpointError, NoAnswer) as error:
        raise Failure(str(error)) from error


def show(options: argparse.Namespace, what: _Shown) -> None:
    """Print an answer in the format of ``--output``."""
    if options.output == "json":
        print_json(what.to_data())
    else:
        print(what.to_text())


def print_json(data: Any) -> None:
    """Print data as indented JSON."""
    print(json.dumps(data, indent=2, sort_keys=False))
