"""``cdi``: prints the CDI specs of a configuration, checks those of this node, and removes unused devices from ours."""

from __future__ import annotations

import argparse
import contextlib
import os

from . import declared
from .shared import CONFIG_OR_STDIN, DEVICE_PLUGIN_DIR, KUBELET, OUTPUT, RUNTIME, Failure, ask, command, option, show


@command("cdi render", CONFIG_OR_STDIN, OUTPUT, examples=("cdi render trial.yaml", "cdi render -o json"))
def render(options: argparse.Namespace) -> int:
    """Print the CDI specs of a configuration."""
    from ..declaration import cdi

    resources = declared.read(options.config).configuration.resources
    specs = cdi.render_specs(resources)
    texts = [f"# {name}\n{cdi.serialise(spec)}".rstrip("\n") for name, spec in specs.items()]
    texts += [f"# {each.cdi_kind}: the running plugin writes this spec" for each in resources if each.dynamic_cdi]
    show(options, specs, *(texts or ["the configuration has no device that needs a CDI spec"]))
    return 0


@command(
    "cdi check",
    RUNTIME,
    OUTPUT,
    option(
        "--dir", metavar="DIR", action="append", help="spec directory to check; repeatable (default: the runtime's own)"
    ),
    examples=("cdi check", "cdi check --dir /etc/cdi -o json"),
)
def check(options: argparse.Namespace) -> int:
    """Check every CDI spec on this node, of every owner, against the rules of its container runtime."""
    from ..diagnostics import cdi_specs, runtime_service

    report = ask(cdi_specs.check(options.dir, runtime_service.cri_socket(options.socket)))
    show(options, report.to_data(), report.to_text())
    return 1 if report.problems else 0


@command(
    "cdi prune",
    KUBELET,
    OUTPUT,
    option("--dir", metavar="DIR", default="/var/run/cdi", help="the plugin's dynamic_cdi_dir (default: %(default)s)"),
    option("--dry-run", action="store_true", help="print what would be removed, and remove nothing"),
    DEVICE_PLUGIN_DIR,
    examples=("cdi prune --dry-run", "cdi prune --dir /srv/former-cdi-dir"),
)
def prune(options: argparse.Namespace) -> int:
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
    from ..support.sockets import SOCKET_DIRECTORY, instance_file

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
                        # The directory goes only if it is empty.
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(instance_file(options.device_plugin_dir))
                        record.remove(own, pods)
            finally:
                instance.release()
    except OSError as error:
        raise Failure(f"{options.dir}: {error.strerror}") from error
    holders = {name: pods[name.partition("=")[2]] for name in kept}
    texts = (
        "{}: {}".format(what, " ".join(names) or "nothing") for what, names in (("removed", removed), ("kept", kept))
    )
    show(options, {"removed": removed, "kept": kept, "holders": holders}, *texts)
    return 0
