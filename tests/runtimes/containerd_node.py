"""Runs inside a container that has a containerd: puts files in place, and says what the roles see there.

One JSON request a line on standard input, one answer a line on standard output:

    {"files": {path: base64}, "links": {path: target}}        only these are there now
    {"facts": [argument, ...]}                                what node_preflight reads of a daemon started so
    {"check": text, "drop_in": text or null, "path": path}
        `config dump` of a text under another name, and a drop-in for it
    {"start": [argument, ...]}                                whether a daemon that is started so serves CRI
"""

import base64
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, "/collections")
sys.path.insert(0, "/collections/ansible_collections/nodedevices/kubernetes/plugin")
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import runtime_facts

from node_device_plugin.runtime import configuration
from node_device_plugin.runtime.configuration import containerd_imports
from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig

PROGRAM = sys.argv[1]
DIRECTORIES = [pathlib.Path("/etc/containerd"), pathlib.Path("/srv/containerd"), pathlib.Path("/var/lib/rancher")]


def place(files, links):
    """Only these files are there afterwards."""
    for directory in DIRECTORIES:
        if directory.is_symlink():
            directory.unlink()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    for path, target in links.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path):
            os.rmdir(path)
        os.symlink(target, path)
    for path, content in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pathlib.Path(path).write_bytes(base64.b64decode(content))
    return {}


def facts(arguments):
    """As module node_preflight reads them."""
    answer = functools.partial(runtime_facts.installed(PROGRAM), name="containerd")
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    config = runtime_facts.containerd_config(answer, arguments)
    config["imports"] = containerd_imports.read(config)
    return {"config": config, "version": said.split()[2].lstrip("v")}


def check(content, drop_in, path):
    """As the adapter does on the node."""
    adapter = configuration.Containerd({"executable": PROGRAM, "config": {"path": path}})
    try:
        return {"effective": adapter.effective_with(content, drop_in)}
    except UnsupportedConfig as error:
        return {"refused": str(error)}


def start(arguments):
    """Start the daemon with directories of its own. Gives its lines up to the one that says what became of it."""
    with tempfile.TemporaryDirectory() as top:
        # The network plugin's binaries are not needed to serve.
        own = [f"--{name}={top}/{name}" for name in ("root", "state", "address")]
        daemon = subprocess.Popen([PROGRAM, *arguments, *own], stderr=subprocess.PIPE, text=True, errors="replace")
        said = []
        for written in daemon.stderr:
            said.append(written)
            if "containerd successfully booted" in written:
                break
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate()
    failed = [written for written in said if "failed to load" in written or "skip loading" in written]
    cri = [
        written
        for written in failed
        if re.search(r"io\.containerd\.(grpc\.v1\.cri|cri\.v1\.|service\.v1\.cri)", written)
    ]
    booted = bool(said) and "containerd successfully booted" in said[-1]
    return {"serves": booted and not cri, "said": "".join(cri or said[-5:])}


for line in sys.stdin:
    request = json.loads(line)
    if "facts" in request:
        answer = facts(request["facts"])
    elif "check" in request:
        answer = check(request["check"], request["drop_in"], request["path"])
    elif "start" in request:
        answer = start(request["start"])
    else:
        answer = place(request["files"], request["links"])
    print(json.dumps(answer), flush=True)
