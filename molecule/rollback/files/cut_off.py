"""Kills a transaction before two records of its journal, recovers, and compares the node with its earlier state.

Runs on a node with a copy of a transaction's plan and program: cut_off.py KEPT. Prints a line for each step.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

KEPT = sys.argv[1]
CONFIG = "/etc/containerd/site/config.toml"
sys.path.insert(0, os.path.join(KEPT, "program.zip"))
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import (  # noqa: E402
    journal,
    launch,
    plan,
    program,
    steps,
)

PLACES = plan.Places()


def cut_off(prepared, step):
    """Carry out the transaction, and kill this process before the record of the step."""
    append = journal.Journal.append

    def append_or_die(self, name, **fields):
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, name, **fields)

    journal.Journal.append = append_or_die
    program.run(PLACES, prepared)


def prepare():
    directory, prefix = os.path.split(PLACES.prepared)
    prepared = tempfile.mkdtemp(prefix=prefix, dir=directory)
    for name in ("plan.json", "program.zip"):
        shutil.copy(os.path.join(KEPT, name), prepared)
    journal.Journal.create(prepared)
    return prepared


def runs():
    answer = json.loads(subprocess.run(PLAN.question, check=True, stdout=subprocess.PIPE).stdout)
    return answer["cdi"]["enabled"], {each["id"]: each["pid"] for each in answer["containers"]}


def tree():
    """Return the files near the runtime and of the ledger, with content."""
    found = {}
    for root in ("/etc/containerd", "/etc/systemd/system", PLACES.directory):
        for top, _directories, files in os.walk(root):
            for path in (os.path.join(top, name) for name in files):
                if not os.path.islink(path):
                    with open(path, "rb") as file:
                        found[path] = (os.stat(path).st_mode, file.read())
    return found


def put_back(files):
    """Restore the earlier state after a completed transaction."""
    for path in (CONFIG, os.path.join(PLACES.directory, "ledger.json")):
        with open(path, "wb") as file:
            file.write(files[path][1])
    subprocess.run(["systemctl", "restart", "containerd"], check=True)


def main():
    enabled, containers = runs()
    files = tree()
    assert not enabled
    # The runtime has the new file, and only the record of the outcome is missing.
    for step in ("probe", steps.DONE):
        command = ["systemd-run", "--quiet", "--wait", "--collect", "--unit=lab-cut-off"]
        subprocess.run([*command, "--", sys.executable, os.path.abspath(__file__), KEPT, prepare(), step], check=False)
        assert os.path.isdir(PLACES.open), "%s: it was not cut off" % step
        outcome = launch.settle(PLACES)
        is_done = step == steps.DONE
        assert (outcome.error is None) == is_done, "%s: %s" % (step, outcome)
        assert runs() == (is_done, containers), "%s: %s instead of %s" % (step, runs(), containers)
        if is_done:
            with open(CONFIG) as file:
                assert "enable_cdi = true" in file.read()
            put_back(files)
        assert tree() == files, "%s: other files" % step
        print("killed before %s: %s" % (step, (outcome.error or "finished").replace("\n", " ")))


PLAN = plan.Plan.load(KEPT)
if len(sys.argv) == 4:
    cut_off(*sys.argv[2:])
else:
    main()
