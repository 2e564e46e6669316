"""``capacities restore``: restores fixed capacities that a restart of the kubelet has reset."""

from __future__ import annotations

import argparse

from .shared import Failure, command, option


@command(
    "restore",
    option(
        "--config",
        metavar="FILE",
        default="/etc/node-device-plugin/capacities.json",
        help="what is to be restored (default: %(default)s)",
    ),
    option("--dry-run", action="store_true", help="have the API server go through it and keep nothing"),
)
def run(options: argparse.Namespace) -> int:
    """Restore, as this node's kubelet, what a restart of it has reset."""
    from ..cluster import restore

    try:
        restored = restore.restore(restore.read_settings(options.config), options.dry_run)
    except restore.RestoreError as error:
        raise Failure(str(error)) from error
    for name, capacity in sorted(restored.items()):
        print(f"{name}: {capacity} again: a restart of the kubelet had reset it", flush=True)
    return 0
