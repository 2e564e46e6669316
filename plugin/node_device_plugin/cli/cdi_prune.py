"""``cdi prune``: removes the devices that no pod holds from the plugin's CDI specs."""

from __future__ import annotations

import argparse
import contextlib
import os

from .shared import DEVICE_PLUGIN_DIR, KUBELET, OUTPUT, Failure, ask, command, option, print_data


@command(
    "prune",
    KUBELET,
    OUTPUT,
    option("--dir", metavar="DIR", default="/var/run/cdi", help="the plugin's dynamic_cdi_dir (default: %(default)s)"),
    option("--dry-run", action="store_true", help="print what would be removed, and remove nothing"),
    DEVICE_PLUGIN_DIR,
    examples=("cdi prune --dry-run", "cdi prune --dir /srv/former-cdi-dir"),
)
def run(options: argparse.Namespace) -> int:
    """Remove the CDI specs that a stopped plugin wrote to --dir, except for devices that a pod holds.

    Also removes the plugin's record of what containers were given, unless a pod holds one of its devices or a plugin
    runs.
    """
    from ..cdi import writer
    from ..cdi.links import Links
    from ..daemon.single_instance import Locked, SingleInstance
    from ..declaration.device_plugin_api import devices_behind
    from ..devices import record
    from ..kubelet import queries
    from ..support.sockets import SOCKET_DIRECTORY

    state = ask(queries.holders(options.kubelet_root, options.device_plugin_dir))
    # By the id of a held device.
    pods = {
        device: f"{each.namespace}/{each.pod}" if each.namespace else f"pod {each.pod}"
        for each in state.held
        for device in devices_behind(each.device)
    }
    try:
        removed = writer.prune([], Links(), pods, options.dir, options.dry_run)
        kept = [name for name in writer.devices(options.dir) if name not in removed]
        if not options.dry_run:
            writer.remove_directory(options.dir)
            own = os.path.join(options.device_plugin_dir, SOCKET_DIRECTORY)
            # With another --dir, the plugin that keeps the record may still run.
            instance = SingleInstance()
            try:
                with contextlib.suppress(Locked):
                    if os.path.isdir(own):
                        instance.take(options.device_plugin_dir)
                        record.remove(own, pods)
            finally:
                instance.release()
    except OSError as error:
        raise Failure(f"{options.dir}: {error.strerror}") from error
    if options.output != "text":
        holders = {name: pods[name.partition("=")[2]] for name in kept}
        print_data(options, {"removed": removed, "kept": kept, "holders": holders})
    else:
        for what, names in (("removed", removed), ("kept", kept)):
            print("{}: {}".format(what, " ".join(names) or "nothing"))
    return 0
