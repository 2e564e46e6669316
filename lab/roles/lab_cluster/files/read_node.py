"""Prints the facts of a lab node that other nodes and the cluster's files need: read_node.py NAME

Output is JSON: name (NAME), address, and kubelet: the configuration that its kubelet has, or will have, without a
cluster. Runs on the node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

# After the kubelet's first start, and before it.
CONFIGURATIONS = ("/var/lib/kubelet/config.yaml", "/usr/local/lib/lab-node/kubelet-config.yaml")

address = subprocess.run(["hostname", "--ip-address"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0]
with open(next(filter(os.path.exists, CONFIGURATIONS)), encoding="utf-8") as file:
    print(json.dumps({"name": sys.argv[1], "address": address, "kubelet": file.read()}))
