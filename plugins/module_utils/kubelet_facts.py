# SPDX-License-Identifier: Apache-2.0
"""The kubelet that runs on a node, by its command line and its configuration.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import os
import re

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.processes import (
    arguments_of,
    option,
    output_of,
    shares_our_pids,
    text_of,
    unit_of,
)

#: The default of --container-runtime-endpoint, from 1.24 on.
_ENDPOINT = "unix:///run/containerd/containerd.sock"


def kubelet_facts():
    """The running kubelet; None if there is none. One that runs in a container of its own (kind) is not the node's."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if first_line("/proc/%s/comm" % pid) == "kubelet" and shares_our_pids(pid):
            arguments = arguments_of(pid)
            if arguments:
                return kubelet_of(int(pid), arguments)
    return None


def kubelet_of(pid, arguments):
    """One kubelet process."""
    executable = os.path.realpath("/proc/%d/exe" % pid)
    command = [arguments[0] if os.path.isabs(arguments[0]) else executable]
    if os.path.basename(executable).startswith("python"):
        # A script: its interpreter, by the name that has its environment, may have options before the script itself.
        command += [word for word in arguments[1:] if not word.startswith("-")][:1]
    version = re.search(r"v(\d+\.\d+\.\d+\S*)", output_of([*command, "--version"]) or "")
    config_path = option(arguments, "--config")
    texts = configurations(config_path, option(arguments, "--config-dir"))
    # In a file that cannot be read here (the kubelet's own mounts), it may be another.
    default = _ENDPOINT if texts or not config_path else None
    return {
        "pid": pid,
        "unit": unit_of(pid),
        "version": version.group(1) if version else None,
        "root_dir": option(arguments, "--root-dir") or "/var/lib/kubelet",
        "config_path": config_path,
        "static_pod_path": option(arguments, "--pod-manifest-path") or setting(texts, "staticPodPath"),
        "cri_socket": socket_path(
            option(arguments, "--container-runtime-endpoint") or setting(texts, "containerRuntimeEndpoint") or default
        ),
    }


def configurations(path, folder):
    """The texts of the kubelet's configuration, from what counts least to what counts most.

    path: of ``--config``. folder: of ``--config-dir``, whose ``.conf`` files override it in the order of their paths.
    """
    paths = [path] if path else []
    for each, folders, names in os.walk(folder) if folder else ():
        folders.sort()
        paths += [os.path.join(each, name) for name in sorted(names) if name.endswith(".conf")]
    return [text for text in map(text_of, paths) if text is not None]


def setting(texts, key):
    """A top-level text of the kubelet's configuration; None where it has none."""
    found = None
    for text in texts:
        found = value_of(text, key) or found
    return found


def value_of(text, key):
    """A top-level text of a JSON or YAML file, without a YAML parser, which nodes do not have."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if isinstance(data, dict):
        value = data.get(key)
        return value if isinstance(value, str) else None
    pattern = r"""(?m)^[ ]{0,2}["']?%s["']?\s*:\s*(?:"([^"]*)"|'([^']*)'|([^\s#,]+))"""
    match = re.search(pattern % key, text or "")
    return next((value for value in match.groups() if value is not None), None) if match else None


def socket_path(endpoint):
    """``unix:///run/x.sock`` as a path; None for nothing."""
    if endpoint and endpoint.startswith("unix:"):
        return "/" + endpoint[len("unix:") :].lstrip("/")
    return endpoint or None


def first_line(path):
    """The first line of a file of /proc; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
