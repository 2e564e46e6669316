"""Prints a node's versions and running programs as JSON."""

import json
import os
import subprocess

ROOT = "/opt/node-devices"


def output(*command):
    """Return a command's output, regardless of its exit code."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout


def version(name):
    """Return the version of a name, for example ``0.2.0`` of ``0.2.0-0123456789ab``."""
    return os.path.basename(name).rpartition("-")[0]


def target(link):
    """Return the version that a link points to; None without a link."""
    path = os.path.join(ROOT, link)
    return version(os.readlink(path)) if os.path.islink(path) else None


command = os.path.join(ROOT, "current/bin/node-device-plugin")
status = json.loads(output(command, "status", "-o", "json"))
runtime = json.loads(output(command, "runtime", "-o", "json"))
places = ("/etc/systemd/system", "/etc/systemd/system/multi-user.target.wants", ROOT, ROOT + "/versions")
print(
    json.dumps(
        {
            "current": target("current"),
            "previous": target("previous"),
            "versions": sorted(map(version, os.listdir(ROOT + "/versions"))),
            "running": status["plugin"] and status["plugin"]["version"],
            "ready": bool(status["plugin"] and status["plugin"]["ready"]),
            "held": sorted(held["device"] for held in status["held"]),
            "containers": sorted("%(id)s %(pid)s" % each for each in runtime["containers"]),
            "started": output(
                "systemctl", "show", "-P", "ExecMainStartTimestampMonotonic", "node-device-plugin"
            ).strip(),
            "left": [name for place in places for name in os.listdir(place) if name.startswith((".", "node-devices-v"))]
            + ["lock"] * os.path.exists("/run/node-devices.lock"),
        }
    )
)
