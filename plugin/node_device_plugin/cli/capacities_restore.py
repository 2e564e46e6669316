"""``capacities restore``: restores fixed capacities that a restart of the kubelet has reset."""

from __future__ import annotations

import argparse

from .shared import Failure, command, option


@command(
    "capacities restore",
    option(
        "--config",
        metavar="FILE",
        default="/etc/node-device-plugin/capacities.json",
        help="file with the node's fixed capacities, which role extended_resources writes (default: %(default)s)",
    ),
    option("--dry-run", action="store_true", help="send the patch as a server-side dry run, so that nothing is stored"),
    examples=("capacities restore --dry-run",),
    internal=True,
)
def run(options: argparse.Namespace) -> int:
    """Restore the fixed capacities that a restart of this node's kubelet has reset, with the kubelet's credentials."""
    from ..kubelet import restore

    try:
        restored = restore.restore(restore.read_settings(options.config), options.dry_run)
    except restore.RestoreError as error:
        raise Failure(str(error)) from error
    for name, capacity in sorted(restored.items()):
        print(f"{name}: restored to {capacity}: a restart of the kubelet had reset it", flush=True)
    return 0
