"""Measures what 2 MB of other programs' CDI specs cost the start and the memory of a plugin that uses CDI itself."""

from __future__ import annotations

import asyncio
import json
import os

from . import processes
from .figures import Figure, median
from .settings import Settings, settings, until

RESOURCES, DEVICES = 10, 100
ROUNDS = 5
#: Bytes of the specs, in YAML as most generators write them.
FOREIGN = 2_000_000
_FILES = 4
#: Limits: multiples of the start and of the memory without these specs.
MOST_START, MOST_RESIDENT = 1.25, 1.05
_DEVICE = """\
- name: gpu{0}
  containerEdits:
    env:
    - GPU_{0}=void
    deviceNodes:
    - path: /dev/gpu{0}
      hostPath: /dev/null
    mounts:
    - hostPath: /usr/lib/libgpu.so.{0}
      containerPath: /usr/lib/libgpu.so.{0}
      options: [ro, nosuid, nodev, bind]
"""


def measure() -> list[Figure]:
    beside: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    with settings(RESOURCES, DEVICES) as given:
        specs = os.path.join(given.directory, "cdi")
        os.mkdir(specs)
        _read_specs_in(given, specs)
        # The first start writes the plugin's own specs, which the next ones find.
        asyncio.run(_once(given))
        for _ in range(ROUNDS):
            alone.append(asyncio.run(_once(given)))
            paths = _write_foreign(specs)
            beside.append(asyncio.run(_once(given)))
            for path in paths:
                os.unlink(path)
    start, resident = (median([values[part] for values in beside]) for part in (0, 1))
    floor_start, floor_resident = (median([values[part] for values in alone]) for part in (0, 1))
    return [
        Figure("start beside 2 MB of foreign specs", "ms", start, floor_start, MOST_START * floor_start),
        Figure(
            "resident beside 2 MB of foreign specs", "MiB", resident, floor_resident, MOST_RESIDENT * floor_resident
        ),
    ]


def _read_specs_in(given: Settings, directory: str) -> None:
    """Configure the plugin to write its specs to this directory and to check its CDI names there."""
    with open(given.config) as file:
        configuration = json.load(file)
    with open(given.config, "w") as file:
        json.dump({**configuration, "cdi_spec_dirs": [directory], "dynamic_cdi_dir": directory}, file)


def _write_foreign(directory: str) -> list[str]:
    """Write the specs of other programs. Returns their paths."""
    paths = []
    for number in range(_FILES):
        lines = ["cdiVersion: 0.6.0\nkind: vendor%d.example/gpu\ndevices:\n" % number]
        count = FOREIGN // _FILES // len(_DEVICE)
        lines += [_DEVICE.format(device) for device in range(count)]
        paths.append(os.path.join(directory, "vendor%d.yaml" % number))
        with open(paths[-1], "w") as file:
            file.writelines(lines)
    return paths


async def _once(given: Settings) -> tuple[float, float]:
    """Return the milliseconds from start to registered, and the resident memory in MiB a second later."""
    async with given.kubelet() as kubelet:
        with processes.plugin(given.config, given.log) as process:
            start = (await until(lambda: given.all_connected(kubelet)) - process.started) * 1e3
            await asyncio.sleep(1)
            return start, process.resident()
