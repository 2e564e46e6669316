# SPDX-License-Identifier: Apache-2.0
"""Reads facts about a node's running kubelet from its command line and its configuration.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import os
import re

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_process import named, option, the_only
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.processes import text_of

#: The default of maxPods.
_MAX_PODS = 110
#: The default of --container-runtime-endpoint, from 1.24 on.
_ENDPOINT = "unix:///run/containerd/containerd.sock"


def kubelet_facts():
    """Return the facts of the kubelet and an empty list.

    If there is no trusted kubelet, return None and a sentence for each untrusted process with the name ``kubelet``.
    Raises NotTrusted, with a sentence, if there are several.
    """
    found, refused = named("kubelet")
    kubelet = the_only("kubelet", found)
    return (kubelet_of(kubelet), []) if kubelet else (None, refused)


def kubelet_of(process):
    """Return the facts of a trusted kubelet process."""
    arguments = process.arguments
    version = re.search(r"v(\d+\.\d+\.\d+\S*)", process.run("--version")[0] or "")
    config_path = option(arguments, "--config")
    texts = configurations(config_path, option(arguments, "--config-dir"))
    # An unreadable configuration file may set another endpoint.
    default = _ENDPOINT if texts or not config_path else None
    return {
        "pid": process.pid,
        "unit": process.unit,
        "version": version.group(1) if version else None,
        "root_dir": option(arguments, "--root-dir") or "/var/lib/kubelet",
        "kubeconfig": option(arguments, "--kubeconfig"),
        "max_pods": max_pods(
            option(arguments, "--max-pods") or setting(texts, "maxPods"),
            option(arguments, "--pods-per-core") or setting(texts, "podsPerCore"),
            is_known=bool(texts) or not config_path,
        ),
        "static_pod_path": option(arguments, "--pod-manifest-path") or setting(texts, "staticPodPath"),
        "cri_socket": socket_path(
            option(arguments, "--container-runtime-endpoint") or setting(texts, "containerRuntimeEndpoint") or default
        ),
    }


def max_pods(most, per_core, is_known):
    """Return how many pods the kubelet accepts; None if unknown.

    most: maxPods as text. per_core: podsPerCore as text. is_known: whether the configuration was readable.
    """
    try:
        number = int(most) if most else _MAX_PODS if is_known else None
        per_core = int(per_core or 0)
    except ValueError:
        return None
    if number is None or per_core <= 0:
        return number
    return min(number, per_core * (os.cpu_count() or 1))


def configurations(path, directory):
    """Return the texts of the kubelet's configuration files. A later text overrides an earlier text.

    path: value of ``--config``. directory: value of ``--config-dir``, whose ``.conf`` files are read in name order.
    """
    paths = [path] if path else []
    for each, directories, names in os.walk(directory) if directory else ():
        directories.sort()
        paths += [os.path.join(each, name) for name in sorted(names) if name.endswith(".conf")]
    return [text for text in map(text_of, paths) if text is not None]


def setting(texts, key):
    """Return a top-level string or number of the kubelet's configuration as text; None if it is not set."""
    found = None
    for text in texts:
        found = value_of(text, key) or found
    return found


def value_of(text, key):
    """Return a top-level string or number of a JSON or YAML text. Python's standard library has no YAML parser."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if isinstance(data, dict):
        value = data.get(key)
        return str(value) if isinstance(value, (str, int)) else None
    pattern = r"""(?m)^[ ]{0,2}["']?%s["']?\s*:\s*(?:"([^"]*)"|'([^']*)'|([^\s#,]+))"""
    match = re.search(pattern % key, text or "")
    return next((value for value in match.groups() if value is not None), None) if match else None


def socket_path(endpoint):
    """Return the path of an endpoint such as ``unix:///run/x.sock``; None if the endpoint is empty."""
    if endpoint and endpoint.startswith("unix:"):
        return "/" + endpoint[len("unix:") :].lstrip("/")
    return endpoint or None
