"""``run`` and ``reload``: run the plugin, or make the running plugin read its configuration again."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING

from ..declaration.configuration_file import Source, load
from .shared import CONFIG, Failure, command, option

if TYPE_CHECKING:
    from ..cluster.node_readiness import ToldNode

#: Files that the process may open. A resource needs two, its socket and the kubelet's stream, so this is enough for
#: 30,000 resources. A pod's hard limit may be a billion, and programs that close every file would hang.
_MOST = 65536


@command(
    "run",
    CONFIG,
    option(
        "--default-config",
        metavar="FILE",
        default="",
        help="configuration file that counts while the file of --config does not exist",
    ),
    option(
        "--startup-taint",
        metavar="KEY:EFFECT",
        default="",
        help="taint to remove from the node once its devices are allocatable; only in a pod of the DaemonSet",
    ),
    option(
        "--node-condition",
        action="store_true",
        help="keep the node's condition NodeDevicesReady; only in a pod of the DaemonSet",
    ),
    examples=("run --config trial.yaml",),
)
def run(options: argparse.Namespace) -> int:
    """Run the device plugin until SIGTERM or SIGINT."""
    # Ignore SIGHUP until the reloader runs. At its start, the daemon checks whether the file has changed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The start creates no garbage, but garbage collections would take a tenth of the start time.
    # daemon.main enables garbage collection again.
    gc.disable()
    from ..daemon import main as daemon
    from ..support.sockets import ALWAYS, CLAIMS_ALONE, INSTANCE, INSTANCE_SOCKET, OVERLAP
    from ..telemetry import logs

    most_files = raise_limit()
    source = Source(options.config, options.default_config)
    loaded = source.load()
    logs.configure(loaded.configuration.log_level, loaded.configuration.log_format)
    try:
        allowed, socket, name = (os.environ.get(key, "") for key in (OVERLAP, INSTANCE_SOCKET, INSTANCE))
        overlap = daemon.Overlap(allowed == ALWAYS, socket, name, claims_alone=allowed == CLAIMS_ALONE)
        asyncio.run(daemon.run(source, loaded, overlap, told_node(options.startup_taint, options.node_condition)))
    except OSError as error:
        fix = f": raise the hard limit of {most_files} (LimitNOFILE=)" if error.errno == errno.EMFILE else ""
        raise Failure(f"the plugin stopped: {error}{fix}") from error
    return 0


def told_node(taint: str, condition: bool) -> ToldNode | None:
    """The node object to tell, if the options request that. Raises Failure."""
    if not (taint or condition):
        return None
    from ..cluster.node_readiness import Taint, ToldNode

    name = os.environ.get("NODE_NAME")
    if not name:
        raise Failure("--startup-taint and --node-condition need the node's name in the variable NODE_NAME")
    try:
        return ToldNode(name, Taint.of(taint) if taint else None, condition)
    except ValueError as error:
        raise Failure(f"--startup-taint {error}") from error


def raise_limit() -> int:
    """Raise the soft limit, 1,024 on most nodes, to the hard limit, at most to 65,536. Returns the limit.

    The low soft limit protects programs that use select(2), which this program does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


@command(
    "reload",
    CONFIG,
    option("--check", action="store_true", help="only compare the running configuration with the file"),
    option("--empty", action="store_true", help="offer no resource until the next reload, as before an uninstall"),
    option("--forget-lost", action="store_true", help="expect the devices no longer that were offered and are lost"),
    examples=("reload", "reload --check", "reload --empty", "reload --forget-lost"),
)
def reload(options: argparse.Namespace) -> int:
    """Make the running plugin read its configuration again, and wait for the result.

    With --empty, the plugin withdraws its devices. A resource that a pod holds stays registered without a free device.
    """
    from ..status_api import client

    loaded = load(options.config)
    directory = loaded.configuration.kubelet_device_plugin_dir
    try:
        if options.check:
            running = asyncio.run(client.ask(directory, "GET", "/status"))["configuration"]
            if running["sha256"] == loaded.sha256:
                return 0
            raise Failure(
                "the plugin runs with configuration {}, but {} is {}: run node-device-plugin reload".format(
                    running["sha256"][:12], options.config, loaded.sha256[:12]
                )
            )
        page = "/withdraw" if options.empty else "/forget" if options.forget_lost else "/reload"
        answer = asyncio.run(client.ask(directory, "POST", page))
    except client.NotAnswering as error:
        raise Failure(str(error)) from error
    for problem in answer["problems"]:
        print(f"node-device-plugin: {problem}", file=sys.stderr)
    said = {"/withdraw": "every resource: withdrawn", "/forget": "lost devices: no longer expected"}
    print(said.get(page, f"configuration {loaded.sha256[:12]}: {answer['result']}"))
    return 1 if answer["result"] == "refused" else 0
