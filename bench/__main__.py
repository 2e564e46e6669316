"""``python -m bench [NAME ...]`` measures, prints a table, and writes .bench/latest.json."""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
import time
from typing import Callable

from . import (
    allocate,
    controller,
    dra,
    fleet,
    foreign_specs,
    hotplug,
    kubelet_restart,
    lab_kubelet,
    many_devices,
    needs,
    start,
)
from .figures import Figure, table

MEASUREMENTS: dict[str, Callable[[], list[Figure]]] = {
    "kubelet_restart": kubelet_restart.measure,
    "lab_kubelet": lab_kubelet.measure,
    "hotplug": hotplug.measure,
    "start": start.measure,
    "foreign_specs": foreign_specs.measure,
    "allocate": allocate.measure,
    "needs": needs.measure,
    "dra": dra.measure,
    "many_devices": many_devices.measure,
    "controller": controller.measure,
    "fleet": fleet.measure,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print("bench: unknown: %s; choose from %s" % (", ".join(unknown), ", ".join(MEASUREMENTS)), file=sys.stderr)
        return 2
    # Silence the stand-in kubelet, which would log every restart.
    logging.getLogger("kubelet").setLevel(logging.CRITICAL)
    figures: list[Figure] = []
    failed = False
    for name in names or MEASUREMENTS:
        print("bench: %s ..." % name, file=sys.stderr, flush=True)
        try:
            figures.extend(MEASUREMENTS[name]())
        except RuntimeError as error:
            print("bench: %s failed: %s" % (name, error), file=sys.stderr)
            failed = True
    print(table(figures))
    os.makedirs(".bench", exist_ok=True)
    with open(os.path.join(".bench", "latest.json"), "w") as file:
        result = {
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "load": os.getloadavg(),
            "figures": [figure.to_data() for figure in figures],
        }
        json.dump(result, file, indent=2)
        file.write("\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
