"""``reload``: makes the running plugin read its configuration again."""

from __future__ import annotations

import argparse
import asyncio
import sys

from ..declaration.configuration_file import load
from .shared import CONFIG, Failure, command, option


@command(
    "reload",
    CONFIG,
    option("--check", action="store_true", help="only compare the running configuration with the file"),
    option("--empty", action="store_true", help="offer no resource until the next reload, as before an uninstall"),
    option("--forget-lost", action="store_true", help="expect the devices no longer that were offered and are lost"),
    examples=("reload", "reload --check", "reload --empty", "reload --forget-lost"),
)
def run(options: argparse.Namespace) -> int:
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
