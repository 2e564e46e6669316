"""What several commands share: options, questions to the node, and output as text or JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any, Callable, Coroutine, Protocol, TypeVar

from ..declaration.configuration_file import DEFAULT_PATH
from ..support.sockets import RUNTIME_SOCKET

DEFAULT_KUBELET_ROOT = "/var/lib/kubelet"

_Answer = TypeVar("_Answer")
#: What argparse gives for sub-commands; it has no public name for the type.
Commands = Any


class Failure(Exception):
    """A command failed: one sentence for the reader, and exit code 1."""


class _Shown(Protocol):
    def to_data(self) -> Any:
        """As JSON takes it."""

    def to_text(self) -> str:
        """For people."""


def _options() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(add_help=False)


CONFIG = _options()
CONFIG.add_argument("--config", metavar="FILE", default=DEFAULT_PATH, help="configuration (default: %(default)s)")
OUTPUT = _options()
OUTPUT.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the output")
RUNTIME = _options()
RUNTIME.add_argument(
    "--socket", metavar="PATH", default=RUNTIME_SOCKET, help="the runtime's CRI socket (default: %(default)s)"
)
KUBELET = _options()
KUBELET.add_argument("--kubelet-root", metavar="DIR", default=DEFAULT_KUBELET_ROOT, help="the kubelet's --root-dir")


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    help: str,
    *parents: argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """Add a command to ``commands``. run: gets the options and gives the exit code. parents: options of it."""
    added: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help, parents=parents)
    added.set_defaults(command=run)
    return added


def add_device_plugin_dir(command: argparse.ArgumentParser) -> None:
    """The option for the kubelet's device plugin directory."""
    command.add_argument(
        "--device-plugin-dir",
        metavar="DIR",
        default=DEFAULT_KUBELET_ROOT + "/device-plugins",
        help="the kubelet's device plugin directory, whose checkpoint answers while no kubelet runs",
    )


def ask(question: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a command's questions to the node. Raises Failure, in one sentence, where the node cannot answer."""
    from ..kubelet.checkpoint import CheckpointError
    from ..runtime.errors import CriError

    try:
        return asyncio.run(question)
    except (CriError, CheckpointError) as error:
        raise Failure(str(error)) from error


def show(options: argparse.Namespace, what: _Shown) -> None:
    """Print an answer in the form that ``--output`` asks for."""
    if options.output == "json":
        print_json(what.to_data())
    else:
        print(what.to_text())


def print_json(data: Any) -> None:
    """Print data as indented JSON."""
    print(json.dumps(data, indent=2, sort_keys=False))
