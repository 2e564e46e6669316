"""Commands of the configuration, run for one device: without a shell, with a time limit, never in the loop's way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Dict, Optional, Sequence

from ..declaration import Device, Resource
from ..support.cancel_safe import done_within

#: Bytes of a command's stderr that are kept: its end, for the reason.
_KEPT = 2048
#: Seconds after its SIGKILL that a command may still take.
_AFTERMATH = 0.5


def environment(resource: Resource, device: Device) -> Dict[str, str]:
    """What a command is told of the device, beside this process's own environment.

    RESOURCE_NAME, DEVICE_ID, DEVICE_PATH (on the host, of the first node), DEVICE_PROPERTY_<NAME> for each property and
    DEVICE_<NAME> for each attribute that is known, such as DEVICE_PCI_ADDRESS.
    """
    told = {"RESOURCE_NAME": resource.name, "DEVICE_ID": device.id}
    if device.nodes:
        told["DEVICE_PATH"] = device.nodes[0].host_path
    for name, value in device.properties.items():
        told["DEVICE_PROPERTY_%s" % name.upper()] = value
    for name, value in device.attributes.known().items():
        told["DEVICE_%s" % name.upper()] = value
    return {**os.environ, **told}


async def run_command(command: Sequence[str], variables: Dict[str, str], timeout: float) -> Optional[str]:
    """Run a command to its end. Gives the reason why it failed, or None.

    command: the program's absolute path and its arguments. timeout: seconds, after which it and what it has started are
    killed.
    """
    loop = asyncio.get_running_loop()
    # A pipe of our own: asyncio's stays open for as long as whoever inherited the other end.
    try:
        reading, writing = os.pipe()
    except OSError as error:
        return "%s: %s" % (command[0], error.strerror)
    os.set_blocking(reading, False)
    said = bytearray()

    def drain() -> None:
        if not _drain(reading, said):
            # At its end a pipe is readable for ever.
            loop.remove_reader(reading)

    loop.add_reader(reading, drain)
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=variables,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=writing,
                # A process group of its own, which can be killed as a whole.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return "%s: %s" % (command[0], getattr(error, "strerror", None) or error)
        finally:
            os.close(writing)
        try:
            if not await done_within(process.wait(), timeout):
                return "%s took longer than %g s" % (command[0], timeout)
            code = process.returncode or 0
        finally:
            await _end(process)
        _drain(reading, said)
    finally:
        loop.remove_reader(reading)
        os.close(reading)
    if code == 0:
        return None
    lines = said.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    ended = "ended with %d" % code if code > 0 else "was killed by signal %d" % -code
    return "%s %s%s" % (command[0], ended, ": " + last if last else "")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill what is left of a command."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        # A process that hangs in the kernel does not even die.
        await done_within(process.wait(), _AFTERMATH)


def _drain(pipe: int, said: bytearray) -> bool:
    """Take what a pipe has; returns whether more can come."""
    try:
        more = os.read(pipe, 1 << 16)
    except BlockingIOError:
        return True
    said += more
    del said[:-_KEPT]
    return bool(more)
