"""``run``: the plugin itself."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal

from ..declaration.configuration_file import load
from .shared import CONFIG, Failure, command


@command("run", CONFIG)
def run(options: argparse.Namespace) -> int:
    """Serve the devices until SIGTERM."""
    # Until there is somebody to reload: whoever asks before that has changed the file, which is seen then.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Nothing that a start makes is garbage, and looking for some would take a tenth of it; see daemon.main.
    gc.disable()
    from ..daemon import main as daemon
    from ..support.sockets import INSTANCE_SOCKET, OVERLAP
    from ..telemetry import logs

    loaded = load(options.config)
    logs.configure(loaded.configuration.log_level, loaded.configuration.log_format)
    try:
        overlap = daemon.Overlap(os.environ.get(OVERLAP) == "true", os.environ.get(INSTANCE_SOCKET, ""))
        asyncio.run(daemon.run(options.config, loaded, overlap))
    except OSError as error:
        raise Failure(f"cannot go on: {error}") from error
    return 0
