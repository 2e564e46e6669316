"""``holders``: lists the held devices with their pods."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .shared import DEVICE_PLUGIN_DIR, KUBELET, OUTPUT, RUNTIME, Failure, ask, command, option, show

if TYPE_CHECKING:
    from ..kubelet.queries import HeldDevice, Holders


@command(
    "holders",
    KUBELET,
    OUTPUT,
    option("--cdi-dir", metavar="DIR", help="the plugin's dynamic_cdi_dir, if it is not /var/run/cdi"),
    option(
        "--by-cdi",
        action="store_true",
        help="list the containers that hold any device by a CDI name, whatever gave it to them, instead of resources",
    ),
    DEVICE_PLUGIN_DIR,
    RUNTIME,
    examples=("holders", "holders -o json", "holders --by-cdi"),
)
def run(options: argparse.Namespace) -> int:
    """List the devices that pods hold."""
    from ..cdi.directories import DEFAULT_DIRECTORIES
    from ..support.directory_names import with_added

    if options.by_cdi:
        return _by_cdi(options)
    of_plugin = options.cdi_dir or DEFAULT_DIRECTORIES[-1]
    state = ask(_held(options, with_added(DEFAULT_DIRECTORIES, of_plugin), of_plugin))
    is_text = options.output == "text"
    if is_text and state.source == "none":
        raise Failure(
            f"cannot list holders: no kubelet answers below {options.kubelet_root} and no checkpoint is in "
            f"{options.device_plugin_dir}: start the kubelet, or set --kubelet-root and --device-plugin-dir"
        )
    if is_text and state.source == "checkpoint":
        print("no kubelet answers; holders are from its checkpoint, which names pods by UID only", file=sys.stderr)
    show(options, state.to_data(), *(map(_text, state.held) if state.held else ["no device is held"]))
    return 0


async def _held(options: argparse.Namespace, specs: Sequence[str], of_plugin: str) -> Holders:
    from ..kubelet import queries

    state = await queries.holders(options.kubelet_root, options.device_plugin_dir, specs)
    return await queries.with_claims(state, of_plugin)


def _text(held: HeldDevice) -> str:
    holder = [f"{held.namespace}/{held.pod} {held.container}"] if held.pod else []
    return " ".join([*holder, held.resource, held.device, *([f"claim {held.claim}"] if held.claim else [])])


def _by_cdi(options: argparse.Namespace) -> int:
    from ..diagnostics.runtime_service import cri_socket
    from ..kubelet.cdi_holders import cdi_holders

    state = ask(cdi_holders(options.kubelet_root, options.device_plugin_dir, cri_socket(options.socket)))
    texts = [f"{held.namespace}/{held.pod} {held.container} {' '.join(held.names)}" for held in state.held]
    if not (texts or state.unknown):
        texts = ["no container holds a device by a CDI name"]
    show(options, state.to_data(), *texts)
    if options.output == "text" and state.unknown:
        raise Failure(f"there may be more holders: {'; '.join(state.unknown)}")
    return 0
