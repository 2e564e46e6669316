"""Waits until a throwaway cluster is ready: await_ready.py DIRECTORY CONTROL_PLANE NODE...

The cluster is ready if every node is Ready and CONTROL_PLANE has kubeadm's label for a control plane. The script sets
this label, because a kubelet may not set it. DIRECTORY: the directory of credentials.py. Prints JSON. changed: whether
the script set the label. After two minutes, the script exits with 1, and reports the nodes' readiness and the stopped
services. Runs on the control plane's node.
"""

from __future__ import annotations

import csv
import json
import ssl
import subprocess
import sys
import time
import urllib.request
from typing import Any

LABEL = "node-role.kubernetes.io/control-plane"
# Seconds: for the whole wait, between two checks, and for an answer.
TIMEOUT, PAUSE, ANSWER = 120, 0.2, 10
SERVICES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")

directory, control_plane, *others = sys.argv[1:]
nodes = {control_plane, *others}


class Api:
    """A client of this node's API server, with the administrator's credentials."""

    def __init__(self) -> None:
        self._tls = ssl.create_default_context(cafile=directory + "/apiserver.crt")
        with open(directory + "/tokens.csv", encoding="utf-8") as file:
            self._token = next(token for token, user, *_rest in csv.reader(file) if user == "admin")

    def ask(self, path: str, merge: dict[str, Any] | None = None) -> dict[str, Any]:
        """The API server's answer. Raises OSError if the server does not answer or refuses the request."""
        headers = {"Authorization": "Bearer " + self._token, "Content-Type": "application/merge-patch+json"}
        data = None if merge is None else json.dumps(merge).encode()
        request = urllib.request.Request(
            "https://127.0.0.1:6443" + path, data, headers, method="PATCH" if merge else "GET"
        )
        with urllib.request.urlopen(request, timeout=ANSWER, context=self._tls) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


def readiness(api: Api) -> dict[str, str]:
    """Maps each node to the status of its condition Ready."""
    return {
        node["metadata"]["name"]: next(
            (each["status"] for each in node["status"].get("conditions", ()) if each["type"] == "Ready"), "not reported"
        )
        for node in api.ask("/api/v1/nodes")["items"]
    }


def label(api: Api) -> bool:
    """Set the control plane's label. Returns whether the label was missing."""
    path = "/api/v1/nodes/" + control_plane
    if LABEL in api.ask(path)["metadata"]["labels"]:
        return False
    api.ask(path, {"metadata": {"labels": {LABEL: ""}}})
    return True


def trouble() -> str:
    """The last journal lines of each stopped service on this node."""
    states = subprocess.run(["systemctl", "is-active", *SERVICES], stdout=subprocess.PIPE, text=True, check=False)
    down = [name for name, state in zip(SERVICES, states.stdout.split()) if state != "active"]
    command = ["journalctl", "--no-pager", "--output=cat", "--lines=5"]
    lines = [
        subprocess.run([*command, "--unit", name], stdout=subprocess.PIPE, text=True, check=False).stdout
        for name in down
    ]
    return "\n".join("%s does not run: %s" % each for each in zip(down, lines))


def main() -> None:
    deadline, api, seen = time.monotonic() + TIMEOUT, Api(), "no check was made"
    while time.monotonic() < deadline:
        try:
            found = readiness(api)
            if all(found.get(node) == "True" for node in nodes):
                print(json.dumps({"changed": label(api)}))
                return
            seen = "of the nodes %s, the condition Ready is %s" % (sorted(nodes), found)
        except OSError as error:
            seen = "the request to the API server failed: %s" % error
        time.sleep(PAUSE)
    sys.exit("the cluster is not ready after %d s: %s\n%s" % (TIMEOUT, seen, trouble()))


main()
