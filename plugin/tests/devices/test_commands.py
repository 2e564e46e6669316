"""Commands of the configuration: what they get, how they fail, and that their limit holds."""

import asyncio
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import NoReturn

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.commands import environment, run_command

(RESOURCE,) = parse_resources(
    [
        {
            "name": "example.com/dev",
            "devices": [
                {"id": "d0", "nodes": [{"path": "/dev/d", "host_path": "/dev/null"}], "properties": {"port": "7"}}
            ],
        }
    ]
)
VARIABLES = environment(RESOURCE, RESOURCE.devices[0])


def shell(text: str) -> "list[str]":
    return ["/bin/sh", "-c", text]


async def test_what_a_command_is_told() -> None:
    test = '[ "$RESOURCE_NAME $DEVICE_ID $DEVICE_PATH $DEVICE_PROPERTY_PORT" = "example.com/dev d0 /dev/null 7" ]'
    assert await run_command(shell(test), VARIABLES, 10) is None


async def test_why_it_failed() -> None:
    talk = "for i in $(seq 2000); do echo line $i >&2; done; echo '  no answer ' >&2; echo >&2; exit 3"
    assert await run_command(shell(talk), VARIABLES, 10) == "/bin/sh ended with 3: no answer"
    assert await run_command(shell("exit 1"), VARIABLES, 10) == "/bin/sh ended with 1"
    assert await run_command(shell("kill -9 $$"), VARIABLES, 10) == "/bin/sh was killed by signal 9"
    assert await run_command(["/none"], VARIABLES, 10) == "/none: No such file or directory"


async def test_a_command_that_closes_its_stderr_costs_the_loop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    read = os.read

    def counted(descriptor: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", counted)
    assert await run_command(shell("echo last >&2; exec 2>&-; sleep 0.5; exit 1"), VARIABLES, 10) == (
        "/bin/sh ended with 1: last"
    )
    assert reads < 10


async def test_a_program_that_hangs_before_it_begins_holds_up_nothing_and_is_killed_then(tmp_path: Path) -> None:
    """Whoever opens a file waits for whoever has a lease on it (fcntl(2), 45 s), as for a file system that is dead."""
    program, begun = tmp_path / "program", tmp_path / "begun"
    program.write_text("#!/bin/sh\ntouch %s\nexec sleep 60\n" % begun)
    program.chmod(0o755)
    handler = signal.signal(signal.SIGIO, signal.SIG_IGN)
    holder = os.open(program, os.O_RDONLY)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        asked = time.monotonic()
        running = asyncio.ensure_future(run_command([str(program)], VARIABLES, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert time.monotonic() - asked < 30
        assert await running == "%s took longer than 1 s" % program
        assert not begun.exists()
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, handler)
    # Whatever waited for the program goes on, and ends.
    while any(_is_child(pid) for pid in os.listdir("/proc") if pid.isdecimal()):
        await asyncio.sleep(0.02)


def _is_child(pid: str) -> bool:
    try:
        with open("/proc/%s/stat" % pid) as file:
            return file.read().rpartition(") ")[2].split()[1] == str(os.getpid())
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_no_file_descriptor_left_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe", refuse)
    assert await run_command(["/bin/true"], VARIABLES, 10) == "/bin/true: Too many open files"


async def test_a_command_that_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hangs = "sleep 60 & echo $! > %s; wait" % pid
    assert await run_command(shell(hangs), VARIABLES, 0.5) == "/bin/sh took longer than 0.5 s"
    for _ in range(100):
        if not _runs(int(pid.read_text())):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("its child is still there")


def _runs(pid: int) -> bool:
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_what_it_leaves_behind_does_not_hold_it_up(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    leaves = "setsid sleep 600 & echo $! > %s" % pid
    assert await run_command(shell(leaves), dict(os.environ), 25) is None
    os.kill(int(pid.read_text()), signal.SIGKILL)
