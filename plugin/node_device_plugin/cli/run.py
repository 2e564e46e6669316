"""``run``: runs the plugin."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import os
import signal

from ..declaration.configuration_file import load
from .shared import CONFIG, Failure, command


@command("run", CONFIG, examples=("run --config trial.yaml",))
def run(options: argparse.Namespace) -> int:
    """Run the device plugin until SIGTERM or SIGINT."""
    # Ignore SIGHUP until the reloader runs. At its start, the daemon checks whether the file has changed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The start creates no garbage, but garbage collections would take a tenth of the start time.
    # daemon.main enables garbage collection again.
    gc.disable()
    from ..daemon import main as daemon
    from ..support.open_files import raise_limit
    from ..support.sockets import INSTANCE_SOCKET, OVERLAP
    from ..telemetry import logs

    most_files = raise_limit()
    loaded = load(options.config)
    logs.configure(loaded.configuration.log_level, loaded.configuration.log_format)
    try:
        overlap = daemon.Overlap(os.environ.get(OVERLAP) == "true", os.environ.get(INSTANCE_SOCKET, ""))
        asyncio.run(daemon.run(options.config, loaded, overlap))
    except OSError as error:
        fix = f": raise the hard limit of {most_files} (LimitNOFILE=)" if error.errno == errno.EMFILE else ""
        raise Failure(f"the plugin stopped: {error}{fix}") from error
    return 0
