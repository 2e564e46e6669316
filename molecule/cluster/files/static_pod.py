"""The pod of a rendered DaemonSet as a static pod: static_pod.py MANIFESTS NODE FOLDER

MANIFESTS: what `node-device-plugin manifests` prints. The node's key of the ConfigMap is written into FOLDER, because
a static pod may not use objects of the API; the pod is printed. No scheduler looks at it, so what chooses nodes goes,
too. Everything else is the DaemonSet's.
"""

from __future__ import annotations

import json
import os
import sys

import yaml

manifests, node, folder = sys.argv[1:]
with open(manifests, encoding="utf-8") as file:
    objects = {each["kind"]: each for each in yaml.safe_load_all(file)}
template = objects["DaemonSet"]["spec"]["template"]
spec = template["spec"]
del spec["affinity"]
(of_config_map,) = [volume for volume in spec["volumes"] if "configMap" in volume]
del of_config_map["configMap"]
of_config_map["hostPath"] = {"path": folder, "type": "Directory"}
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, node), "w", encoding="utf-8") as file:
    file.write(objects["ConfigMap"]["data"][node])
metadata = {
    "name": objects["DaemonSet"]["metadata"]["name"],
    "namespace": objects["Namespace"]["metadata"]["name"],
    "labels": template["metadata"]["labels"],
}
print(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
