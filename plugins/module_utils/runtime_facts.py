# SPDX-License-Identifier: Apache-2.0
"""The container runtime that a node's kubelet uses: socket, then process, executable, version, unit, configuration.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import glob
import os
import re
import socket
import stat
import struct

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.processes import (
    answer_of,
    arguments_of,
    option,
    output_of,
    text_of,
    unit_of,
)

DEFAULT_SOCKET = "/run/containerd/containerd.sock"
#: Of distributions whose kubelet is no process of its own, or stands aside: theirs is used, whoever else runs one.
SOCKETS = (
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    DEFAULT_SOCKET,
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
)


def likely_socket(sockets=SOCKETS):
    """The CRI socket of a node whose kubelet does not name one; the default's where nobody listens."""
    return next((path for path in sockets if listener(path)[0] is not None), DEFAULT_SOCKET)


def listener(path):
    """The process behind a unix socket: (pid, problem)."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return None, "it is not a socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(5)
            client.connect(path)
            # Credentials of whoever called listen(); see unix(7).
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError as error:
        return None, (error.strerror or str(error)).lower()
    return struct.unpack("3i", credentials)[0], None


def runtime_facts(path):
    """The container runtime behind a CRI socket, or behind Docker's."""
    facts = {"socket": path}
    pid, problem = listener(path)
    if pid is None:
        return dict(facts, problem=problem)
    # Where systemd made the socket, listen() was its call, and the daemon came later.
    if pid == 1:
        pid = process_named("dockerd") or pid
    facts.update(pid=pid, unit=unit_of(pid))
    # The link works even where the file was replaced by an upgrade: it is the program that runs.
    program = "/proc/%d/exe" % pid
    facts["executable"] = os.readlink(program).replace(" (deleted)", "")
    facts["name"] = os.path.basename(facts["executable"])
    said = output_of([program, "--version"]) or ""
    version = re.search(r"\bv?(\d+\.\d+\.\d+\S*)", said)
    facts["version"] = version.group(1).rstrip(",") if version else None
    read = {"containerd": containerd_config, "crio": crio_config, "dockerd": docker_config}.get(facts["name"])
    if read:
        facts["config"] = read(program, arguments_of(pid))
    return facts


def process_named(name):
    """The first process of that name; None if there is none."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if text_of("/proc/%s/comm" % pid) == name + "\n":
            return int(pid)
    return None


def file_facts(path):
    """A configuration file."""
    content = text_of(path)
    return {
        "path": path,
        # Where the text is, which is what an edit replaces; imports are relative to the name that the daemon was given.
        "real_path": os.path.realpath(path),
        "exists": os.path.exists(path),
        "content": content,
        "sha256": ledgers.sha256(content.encode()) if content is not None else None,
    }


def containerd_config(program, arguments):
    """containerd's root configuration file, and what the version that runs makes of it."""
    given = option(arguments, "--config", "-c")
    path = given or "/etc/containerd/config.toml"
    folder = os.path.dirname(path)
    # Only the default file may be missing, and then `config dump` fails, while the daemon runs with its defaults.
    command = [program, "--config", path, "config", "dump" if given or os.path.exists(path) else "default"]
    effective, problem = answer_of(command)
    patterns = [os.path.normpath(os.path.join(folder, name)) for name in texts_of_list(effective, "imports")]
    others = texts(patterns)
    for itself in (path, os.path.realpath(path)):
        others.pop(itself, None)
    return dict(
        file_facts(path),
        effective=effective,
        problem=problem,
        # What k3s and RKE2 generate the root file from.
        files=texts([os.path.join(folder, "config*.toml.tmpl")]),
        imported=others,
        # `config dump` of 2.x passes over them, and its daemon does not start. Those that an import imports have other
        # folders, which it does not tell.
        missing_imports=[name for name in patterns if "*" not in name and not os.path.isfile(name)],
    )


def texts_of_list(toml, key):
    """A list of texts in what containerd prints, without a TOML parser, which nodes lack."""
    found = re.search(r"(?m)^\s*%s\s*=\s*\[([^\]]*)\]" % key, toml or "")
    return [one or other for one, other in re.findall(r"\"([^\"]+)\"|'([^']+)'", found.group(1))] if found else []


def crio_config(program, arguments):
    """CRI-O's configuration: a file, and a folder of drop-ins."""
    path = option(arguments, "--config", "-c") or "/etc/crio/crio.conf"
    folder = option(arguments, "--config-dir", "-d") or "/etc/crio/crio.conf.d"
    effective, problem = answer_of([program, "--config", path, "--config-dir", folder, "config"])
    return dict(
        file_facts(path),
        drop_in_folder=folder,
        files=texts([os.path.join(folder, "*")]),
        effective=effective,
        problem=problem,
    )


def docker_config(_program, arguments):
    """Docker's configuration file."""
    return file_facts(option(arguments, "--config-file") or "/etc/docker/daemon.json")


def texts(patterns):
    """The text of each file, by path."""
    paths = sorted({path for pattern in patterns for path in glob.glob(pattern)})
    return {path: text for path, text in ((path, text_of(path)) for path in paths) if text is not None}
