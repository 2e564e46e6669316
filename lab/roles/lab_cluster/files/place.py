"""Brings a lab node to the state that standard input describes: place.py

Input is a JSON list of parts. files: each with path, mode and content. routes: maps each subnet to its gateway.
services: each with its name and files. If a file of a service changed, the script restarts the service. Otherwise, the
script starts the service. The script does not wait for services. Prints JSON. changed: the written files. Runs on the
node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.PIPE)


def present(path: str) -> tuple[str, int] | None:
    """The content and mode of a file; None if the file does not exist."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(), os.fstat(file.fileno()).st_mode & 0o7777
    except FileNotFoundError:
        return None


def write(path: str, content: str, mode: int) -> None:
    """Replace a file atomically, so that a watcher of the directory never reads a partial file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = os.path.join(os.path.dirname(path), "." + os.path.basename(path))
    with open(new, "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
    os.rename(new, path)


parts = json.load(sys.stdin)
changed = []
for file in (each for part in parts for each in part["files"]):
    if present(file["path"]) != (file["content"], int(file["mode"], 8)):
        write(file["path"], file["content"], int(file["mode"], 8))
        changed.append(file["path"])
for part in parts:
    for subnet, address in part["routes"].items():
        run("ip", "route", "replace", subnet, "via", address)
services = {each["name"]: set(each["files"]) & set(changed) for part in parts for each in part["services"]}
if changed:
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--quiet", *services)
# Use one call for each verb, so that systemd orders the services.
for verb, names in (
    ("restart", [name for name, of_it in services.items() if of_it]),
    ("start", [name for name, of_it in services.items() if not of_it]),
):
    if names:
        run("systemctl", verb, "--no-block", *names)
print(json.dumps({"changed": changed}))
