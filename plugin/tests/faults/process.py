"""The plugin as a process of its own, for tests of what happens to processes."""

import asyncio
import contextlib
import ctypes
import functools
import os
import resource
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Optional

import yaml

# Looked up here: not much may be done between fork and exec.
_PRCTL = ctypes.CDLL(None).prctl
PATH = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])


class PluginProcess:
    """A running plugin. log: the file with what it has said."""

    def __init__(self, process: "asyncio.subprocess.Process", log: Path) -> None:
        self.process = process
        self._log = log

    def said(self) -> str:
        return self._log.read_text()

    async def until_said(self, text: str, timeout: float = 60) -> None:
        deadline = asyncio.get_running_loop().time() + timeout
        while text not in self.said():
            assert asyncio.get_running_loop().time() < deadline, "not said: %s\n%s" % (text, self.said())
            await asyncio.sleep(0.02)


def _limited(open_files: Optional[int]) -> None:
    """Take CAP_DAC_OVERRIDE from root, as the unit does: permissions are for root, too. Others have it not anyway."""
    _PRCTL(24, 1)
    if open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@contextlib.asynccontextmanager
async def plugin_process(
    folder: Path,
    configuration: dict[str, Any],
    name: str = "plugin",
    module: str = "node_device_plugin",
    environment: Optional[Mapping[str, str]] = None,
    open_files: Optional[int] = None,
) -> AsyncIterator[PluginProcess]:
    """Run the plugin with a configuration; it is killed at the end, if it runs then. folder: for its files.

    module: what runs it. environment: more variables. open_files: the soft limit.
    """
    config, log = folder / (name + ".yaml"), folder / (name + ".log")
    config.write_text(yaml.safe_dump(configuration))
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, "run", "--config", str(config)),
            env={**os.environ, "PYTHONPATH": PATH, **(environment or {})},
            stderr=output,
            preexec_fn=functools.partial(_limited, open_files),
        )
    try:
        yield PluginProcess(process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
