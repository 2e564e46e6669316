"""Whether the declared device nodes are there."""

from __future__ import annotations

import os
import stat
from typing import Dict, Optional

from .declaration import Device, Resource


def unhealthy_reason(device: Device) -> Optional[str]:
    """Why a device cannot be used, or None. It reads the file system: not for the event loop."""
    for node in device.nodes:
        try:
            mode = os.stat(node.host_path).st_mode
        except OSError as error:
            return "%s: %s" % (node.host_path, error.strerror)
        if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
            return "%s: not a device node" % node.host_path
    return None


def check(resource: Resource) -> Dict[str, Optional[str]]:
    """Every device of a resource: its id to the reason why it cannot be used, or None."""
    return {device.id: unhealthy_reason(device) for device in resource.devices}
