"""run_recipes.py NODE [KUBECONFIG]: runs recipes' pods on a node, and compares what their containers see.

With a kubeconfig, the pods are those of each claim.yml, and get their devices by claims. Otherwise, the node's kubelet
runs the pods of all recipes, without a cluster.

A recipe is a directory of examples/cookbook. Its sees.yml has what a container of its pod.yml sees:

devices    each device node that the container has beside those of every container, with the node on the host
variables  some environment variables
mounts     some paths where something is mounted
pods       how many such pods run at a time (default: 1)
by_claim   what the container of the pod of claim.yml sees, if this differs

Every pod runs as root, and then as user 1000, who must be able to open the devices, too. Ends with 1 and a line for
each difference.
"""

from __future__ import annotations

import copy
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
ENGINE = CHECKOUT / "lab/roles/lab_node/files/engine"
USERS = (0, 1000)
#: Seconds for the pods of a round.
TIMEOUT = 180
#: In every container.
COMMON = {f"/dev/{name}" for name in ("console", "full", "null", "ptmx", "random", "tty", "urandom", "zero")}
IN_THE_CONTAINER = """
trap exit TERM
for node in $(find /dev -type c -o -type b); do
  opens=no; (: <>$node) 2>/dev/null && opens=yes
  echo "device $node $(stat -c %t:%T $node) $opens"
done
cut -d ' ' -f 2 /proc/mounts | sed 's/^/mount /'
env | sed 's/^/variable /'
echo "user $(id -u)"
echo end
sleep 1000 & wait
"""
#: Prints the logs when all pods have written theirs, or after the timeout.
RUN = r"""
set -eu
new=$(mktemp -d /etc/kubernetes/new-XXXX)
tar -x -C $new
wanted=$(ls $new | wc -l)
mv $new/* /etc/kubernetes/manifests/
rmdir $new
for look in $(seq %d); do
  [ "$(grep -ls ' F end$' /var/log/pods/default_%s-*/main/*.log | wc -l)" -lt $wanted ] || break
  sleep 0.5
done
grep -s '' /var/log/pods/default_%s-*/main/*.log /dev/null || true
"""
#: Until the devices are free.
END = """
rm -f /etc/kubernetes/manifests/*.json
for look in $(seq 240); do
  holders=$(/usr/local/bin/node-device-plugin holders) || exit
  case $holders in *default/*) sleep 0.5 ;; *) exit 0 ;; esac
done
echo "still held: $holders"
exit 1
"""


class Recipe(NamedTuple):
    """name: of its directory. pod, sees: its files."""

    name: str
    pod: dict[str, Any]
    sees: dict[str, Any]

    @property
    def pods(self) -> int:
        return int(self.sees.get("pods", 1))


class Run(NamedTuple):
    """A pod of a recipe."""

    recipe: Recipe
    user: int
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.recipe.name}-{self.user}-{self.number}"

    def manifest(self, name: str) -> dict[str, Any]:
        """The recipe's pod for this node, which has one image: its container prints what it sees."""
        pod = copy.deepcopy(self.recipe.pod)
        (container,) = pod["spec"]["containers"]
        container["image"] = "localhost/node-devices/busybox:lab"
        container["imagePullPolicy"] = "Never"
        container["command"] = ["/bin/sh", "-c", IN_THE_CONTAINER]
        pod["metadata"] = {"name": name, "namespace": "default"}
        pod["spec"].update(hostNetwork=True, terminationGracePeriodSeconds=1)
        pod["spec"]["securityContext"] = {"runAsUser": self.user, "runAsGroup": self.user}
        return dict(pod)


def recipes() -> list[Recipe]:
    found = []
    for path in sorted((CHECKOUT / "examples/cookbook").glob("*/declaration.yml")):
        pod, sees = (yaml.safe_load((path.parent / name).read_text()) for name in ("pod.yml", "sees.yml"))
        found.append(Recipe(path.parent.name, pod, sees))
    return found


def recipes_with_claims() -> list[tuple[Recipe, dict[str, Any]]]:
    """The pod of each claim.yml, and its ResourceClaimTemplate."""
    found = []
    for recipe in recipes():
        path = CHECKOUT / "examples/cookbook" / recipe.name / "claim.yml"
        if path.exists():
            template, pod = yaml.safe_load_all(path.read_text())
            found.append((recipe._replace(pod=pod, sees=recipe.sees.get("by_claim", recipe.sees)), template))
    return found


def on_node(node: str, script: str, data: bytes = b"") -> str:
    command = [str(ENGINE), "exec", "--interactive", node, "sh", "-c", script]
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"{node}: {done.stdout.decode()}")
    return done.stdout.decode()


def logs(node: str, runs: list[Run]) -> dict[str, list[str]]:
    """What the container of each pod printed, by the run's name. All of the pods run at a time."""
    # The kubelet would take the same manifest for the pod of an earlier round.
    mark = uuid.uuid4().hex[:6]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for run in runs:
            text = json.dumps(run.manifest(f"{mark}-{run.name}")).encode()
            member = tarfile.TarInfo(f"{run.name}.json")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    found: dict[str, list[str]] = {run.name: [] for run in runs}
    for line in on_node(node, RUN % (2 * TIMEOUT, mark, mark), archive.getvalue()).splitlines():
        path, _, entry = line.partition(":")
        name = path.split("/")[4].removeprefix(f"default_{mark}-").partition(f"-{node}_")[0]
        # Time, stream and tag come before the text.
        found[name].append(entry.split(" ", 3)[3])
    on_node(node, END)
    return found


def differences(run: Run, log: list[str], numbers: dict[str, str]) -> Iterator[str]:
    """What a container does not see as its recipe has it. numbers: of each device node on the host."""
    if "end" not in log:
        yield f"its container did not print what it sees within {TIMEOUT} s: {log}"
        return
    if f"user {run.user}" not in log:
        yield "it has another user"
    lines = [line.split() for line in log if line.startswith("device ")]
    seen = {path: (number, opens) for _, path, number, opens in lines if path not in COMMON and "/pts/" not in path}
    expected = run.recipe.sees["devices"]
    for path in expected.keys() - seen.keys():
        yield f"it does not see {path}"
    for path in seen.keys() - expected.keys():
        yield f"it sees {path}, which sees.yml does not have"
    for path, (number, opens) in seen.items():
        if path in expected and number != numbers[expected[path]]:
            yield f"{path} is {number}, but {expected[path]} of the host is {numbers[expected[path]]}"
        if opens != "yes":
            yield f"{path} does not open"
    for name, value in run.recipe.sees.get("variables", {}).items():
        if f"variable {name}={value}" not in log:
            yield f"it has no variable {name}={value}: {[line for line in log if line.startswith('variable ')]}"
    for path in run.recipe.sees.get("mounts", []):
        if f"mount {path}" not in log:
            yield f"nothing is mounted at {path}"


def numbers_on(node: str, all_recipes: list[Recipe]) -> dict[str, str]:
    """The numbers of each device node on the host."""
    paths = sorted({path for recipe in all_recipes for path in recipe.sees["devices"].values()})
    return dict(line.split() for line in on_node(node, f"stat -c '%n %t:%T' {' '.join(paths)}").splitlines())


def by_claims(node: str, kubeconfig: str) -> int:
    """Run the pods of each claim.yml, one after the other."""
    import cluster_api

    cluster, found = cluster_api.Cluster(kubeconfig), recipes_with_claims()
    numbers, problems = numbers_on(node, [recipe for recipe, _template in found]), []
    for recipe, template in found:
        templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
        cluster.ask("POST", templates, template)
        for run in (Run(recipe, user) for user in USERS):
            cluster.ask("POST", cluster_api.PODS, run.manifest(run.name))
            path = f"{cluster_api.PODS}/{run.name}/log"
            log = cluster_api.until(lambda: cluster.ask("GET", path).splitlines(), lambda log: "end" in log)  # noqa: B023
            problems += [f"{run.name}: {each}" for each in differences(run, log, numbers)]
            print(f"{run.name}: {len(log)} lines")
            cluster.delete(run.name)
        cluster.ask("DELETE", f"{templates}/{template['metadata']['name']}")
    print("\n".join(problems) or "no difference")
    return bool(problems) or not found


def main(node: str) -> int:
    all_recipes = recipes()
    numbers = numbers_on(node, all_recipes)
    rounds = [[Run(recipe, user) for recipe in all_recipes] for user in USERS]
    # Half of the pods as each user.
    crowd = [recipe for recipe in all_recipes if recipe.pods > 1]
    rounds.append([Run(recipe, USERS[number % 2], number) for recipe in crowd for number in range(recipe.pods)])
    problems = []
    for runs in rounds:
        begun = time.monotonic()
        found = logs(node, runs)
        problems += [f"{run.name}: {each}" for run in runs for each in differences(run, found[run.name], numbers)]
        print(f"{len(runs)} pods at a time: {time.monotonic() - begun:.0f} s")
    for recipe in all_recipes:
        print(f"{recipe.name}: {recipe.pods} pod(s) at a time see {', '.join(recipe.sees['devices'])}")
    print("\n".join(problems) or "no difference")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 2 else by_claims(*sys.argv[1:]))
