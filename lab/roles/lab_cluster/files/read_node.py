"""Prints the facts of a lab node that other nodes and the cluster's files need: read_node.py NAME

Output is JSON. name: NAME. address: the node's IP address. kubelet: the text of the kubelet's configuration file
without a cluster. Runs on the node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

# The paths after and before the kubelet's first start.
CONFIGURATIONS = ("/var/lib/kubelet/config.yaml", "/usr/local/lib/lab-node/kubelet-config.yaml")

address = subprocess.run(
    ["hostname", "--all-ip-addresses"], stdout=subprocess.PIPE, text=True, check=True
).stdout.split()[0]
with open(next(filter(os.path.exists, CONFIGURATIONS)), encoding="utf-8") as file:
    print(json.dumps({"name": sys.argv[1], "address": address, "kubelet": file.read()}))
