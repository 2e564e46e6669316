"""Runs configured commands for one device: no shell, a time limit, no blocked event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from ..declaration import Device, Resource
from ..support.bounded_calls import in_thread
from .reason import Reason

#: Maximum bytes kept from the end of a command's stderr, for the reason.
_KEPT = 2048
#: Seconds to wait for a command to end after its SIGKILL.
_AFTERMATH = 0.5
#: Maximum number of pre_start commands that run at once for one container or claim.
_AT_ONCE = 8


def environment(resource: Resource, device: Device) -> dict[str, str]:
    """The environment of a command: this process's environment and the variables of the device.

    The device variables are RESOURCE_NAME, DEVICE_ID, DEVICE_PATH (the first node's path on the
    host), DEVICE_PROPERTY_<NAME> for each property and DEVICE_<NAME> for each known attribute, such
    as DEVICE_PCI_ADDRESS.
    """
    told = {"RESOURCE_NAME": resource.name, "DEVICE_ID": device.id}
    if device.nodes:
        told["DEVICE_PATH"] = device.nodes[0].host_path
    for name, value in device.properties.items():
        told[f"DEVICE_PROPERTY_{name.upper()}"] = value
    for name, value in device.attributes.known().items():
        told[f"DEVICE_{name.upper()}"] = value
    return {**os.environ, **told}


async def run_command(command: Sequence[str], variables: dict[str, str], timeout: float) -> str | None:
    """Run a command to its end. Returns the reason why the command failed, or None.

    command: the program's absolute path and its arguments. timeout: seconds. When the
    command or the time ends, this function kills the whole process group.
    """
    loop = asyncio.get_running_loop()
    # Create a pipe, because asyncio's own pipe would stay open until all processes that inherited
    # the other end have exited.
    try:
        reading, writing = os.pipe()
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    os.set_blocking(reading, False)
    said = bytearray()

    def drain() -> None:
        if not _drain(reading, said):
            # At its end, a pipe stays readable forever.
            loop.remove_reader(reading)

    loop.add_reader(reading, drain)
    running = _Running(command, variables, writing)
    ended = asyncio.ensure_future(in_thread(running.run))
    try:
        try:
            await asyncio.wait([ended], timeout=timeout)
            if not ended.done():
                late = f"took longer than {timeout:g} s"
                return Reason(f"{command[0]} {late}", late)
            code = ended.result()
        except (OSError, ValueError) as error:
            return "{}: {}".format(command[0], getattr(error, "strerror", None) or error)
        finally:
            running.kill()
            # Limit the wait: a process that hangs in the kernel does not end at SIGKILL.
            await asyncio.wait([ended], timeout=_AFTERMATH)
            ended.cancel()
        _drain(reading, said)
    finally:
        loop.remove_reader(reading)
        os.close(reading)
    if code == 0:
        return None
    lines = said.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    ending = "ended with %d" % code if code > 0 else "was killed by signal %d" % -code
    # The kind omits the output, because it may change at every run, such as a temperature.
    return Reason("{} {}{}".format(command[0], ending, ": " + last if last else ""), ending)


async def pre_start(resource: Resource, devices: Sequence[Device]) -> str | None:
    """Run the resource's command for each device. Returns why a container cannot use the devices, or None.

    The resource's timeout covers all devices together, as the kubelet's limit does.
    """
    if not resource.pre_start.command:
        return None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + resource.pre_start.timeout
    turns = asyncio.Semaphore(_AT_ONCE)

    async def run(device: Device) -> str | None:
        async with turns:
            left = deadline - loop.time()
            if left <= 0:
                return f"device {device.id}: pre_start.timeout ({resource.pre_start.timeout:g} s) ended before its turn"
            problem = await run_command(resource.pre_start.command, environment(resource, device), left)
            return None if problem is None else f"device {device.id}: {problem}"

    problems = [problem for problem in await asyncio.gather(*map(run, devices)) if problem is not None]
    return "; ".join(problems) or None


class _Running:
    """A command that may not have started yet: a program on a dead file system may start late, or never."""

    def __init__(self, command: Sequence[str], variables: dict[str, str], stderr: int) -> None:
        self._command, self._variables, self._stderr = command, variables, stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> int:
        """Run the command and return its exit code. Blocks. Raises OSError or ValueError if the start fails."""
        try:
            self._process = subprocess.Popen(
                self._command,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                # The command gets its own process group, which can be killed as a whole.
                start_new_session=True,
            )
        finally:
            os.close(self._stderr)
        if self._is_over:
            self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """Kill the command's process group, now or as soon as the command starts."""
        self._is_over = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _drain(pipe: int, said: bytearray) -> bool:
    """Read the available bytes of a pipe; returns whether more can come."""
    try:
        more = os.read(pipe, 1 << 16)
    except BlockingIOError:
        return True
    said += more
    del said[:-_KEPT]
    return bool(more)
