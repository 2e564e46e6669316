"""Shared parts of the commands: options, queries to the node, and output as text, JSON or YAML."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Callable, NamedTuple, TypeVar

from ..declaration.configuration_file import DEFAULT_PATH
from ..support.documents import STDIN, write_yaml

DEFAULT_KUBELET_ROOT = "/var/lib/kubelet"
EXIT_CODES = "exit codes: 0, no problem; 1, a problem was found or the command failed; 2, wrong usage; 130, interrupted"

_Answer = TypeVar("_Answer")


class Failure(Exception):
    """A command failed. The message is one sentence for the user. The exit code is 1."""


def option(*names: str, **keywords: Any) -> argparse.ArgumentParser:
    """An option or a positional argument, with the parameters of argparse's add_argument."""
    added = argparse.ArgumentParser(add_help=False)
    added.add_argument(*names, **keywords)
    return added


def _file(path: str) -> str:
    if path == STDIN:
        raise argparse.ArgumentTypeError("must be a file: this command does not read stdin")
    return path


def _configuration() -> argparse.ArgumentParser:
    added = argparse.ArgumentParser(add_help=False)
    either = added.add_mutually_exclusive_group()
    help = "configuration file, group_vars or host_vars file, or - for stdin (default: %(default)s)"
    either.add_argument("--config", metavar="FILE", default=DEFAULT_PATH, help=help)
    # Without this default, a missing positional argument would override --config.
    either.add_argument("config", metavar="FILE", nargs="?", default=argparse.SUPPRESS, help="the same as --config")
    return added


#: The configuration file of the running plugin.
CONFIG = option(
    "--config", metavar="FILE", type=_file, default=DEFAULT_PATH, help="configuration file (default: %(default)s)"
)
#: Any configuration file, group_vars file or host_vars file.
CONFIG_OR_STDIN = _configuration()
OUTPUT = option(
    "-o", "--output", choices=("text", "json", "yaml"), default="text", help="output format (default: %(default)s)"
)
RUNTIME = option(
    "--socket", metavar="PATH", help="the runtime's CRI socket (default: the running kubelet's, or a well-known one)"
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
    """A command. run: takes the options and returns the exit code. parser: the parameters of argparse's add_parser."""

    words: Sequence[str]
    run: Callable[[argparse.Namespace], int]
    parser: Mapping[str, Any]


def command(
    words: str, *options: argparse.ArgumentParser, examples: Sequence[str] = (), internal: bool = False
) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Turn the decorated function into a command; the function's docstring is the command's help.

    words: the command's name. examples: command lines without the program's name. internal: whether the list of
    commands omits the command. Only our roles and services call internal commands.
    """

    def made(run: Callable[[argparse.Namespace], int]) -> Command:
        lines = ["examples:", *(f"  node-device-plugin {each}" for each in examples), ""] if examples else []
        parser = {
            "description": run.__doc__,
            "epilog": "\n".join([*lines, EXIT_CODES]),
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            "parents": options,
        }
        return Command(words.split(), run, parser if internal else {**parser, "help": run.__doc__})

    return made


def ask(question: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a command's query. Raises Failure, with one sentence, if the node cannot answer."""
    from ..kubelet.checkpoint import CheckpointError
    from ..runtime.errors import CriError
    from ..support.bounded_calls import NoAnswer

    try:
        return asyncio.run(question)
    except (CriError, CheckpointError, NoAnswer) as error:
        raise Failure(str(error)) from error


def show(options: argparse.Namespace, data: Any, *texts: str) -> None:
    """Print an answer in the format of ``--output``. texts: the answer as text."""
    if options.output != "text":
        print_data(options, data)
    else:
        for text in texts:
            print(text)


def print_data(options: argparse.Namespace, data: Any) -> None:
    """Print data as YAML or as indented JSON, by ``--output``."""
    text = write_yaml(data) if options.output == "yaml" else json.dumps(data, indent=2) + "\n"
    print(text, end="")
