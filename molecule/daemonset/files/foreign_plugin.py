"""A foreign device plugin, which serves until it is killed: foreign_plugin.py RESOURCE DEVICE...

Runs on a node with the environment of role node_tools.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from kubelet_stand_in.recorder import RecordingPlugin, healthy


async def _serve(resource: str, *devices: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    plugin = RecordingPlugin("/var/lib/kubelet/device-plugins", resource, "foreign.sock", healthy(devices))
    await plugin.start()
    said = await plugin.register()
    assert said == "ok", said
    await ended.wait()
    await plugin.stop()


asyncio.run(_serve(*sys.argv[1:]))
