"""What the other nodes and the cluster's files need to know of a lab node: read_node.py NAME

Prints JSON: name (NAME), address, and kubelet: the configuration that its kubelet has, or will have, without a cluster.
Runs on the node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

# Of a kubelet that has run, and of one that has not.
CONFIGURATIONS = ("/var/lib/kubelet/config.yaml", "/usr/local/lib/lab-node/kubelet-config.yaml")

address = subprocess.run(["hostname", "--ip-address"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0]
with open(next(filter(os.path.exists, CONFIGURATIONS)), encoding="utf-8") as file:
    print(json.dumps({"name": sys.argv[1], "address": address, "kubelet": file.read()}))
