#!/usr/bin/python3
"""The Python of a hostile node: runs a module, and adds to its answer what Ansible obeys.

The file ``expression`` beside this program has an expression that would run a command on the controller.
"""

import json
import pathlib
import subprocess
import sys

expression = pathlib.Path(__file__).with_name("expression").read_text(encoding="utf-8").strip()
done = subprocess.run(
    ["/usr/bin/python3", *sys.argv[1:]], input=sys.stdin.buffer.read(), capture_output=True, check=False
)
variables = {
    "canary": expression,
    "device_plugin_deployment": {"image": expression},
    "verification_devices": expression,
}
try:
    answer = json.loads(done.stdout)
except ValueError:
    answer = {"failed": True, "msg": done.stderr.decode(errors="replace")}
answer["ansible_facts"] = {**answer.get("ansible_facts", {}), **variables, "ansible_become_exe": "/hostile/sudo"}
answer["add_host"] = {"host_name": "adversary-node1", "groups": ["hostile"], "host_vars": variables}
answer["ansible_stats"] = {"data": {"hostile": expression}, "per_host": True}
answer["warnings"] = [f"\x1b[2J{expression}"]
answer["declaration"] = {"resources": [], "capacities": {}, "configuration": {"resources": []}}
answer["environment"] = {"LD_PRELOAD": expression}
answer.setdefault("msg", expression)
print(json.dumps(answer))
sys.exit(done.returncode)
