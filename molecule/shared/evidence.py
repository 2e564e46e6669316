"""evidence.py DIRECTORY KUBECONFIG NODE...: copies logs and states of throwaway nodes and their API server.

Each node has a directory. If KUBECONFIG exists, the cluster also has a directory. The file of a failed command has its
exit code. Files of container runtimes are only listed, because they may contain passwords of registries.
"""

from __future__ import annotations

import concurrent.futures
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
ENGINE = CHECKOUT / "lab/roles/lab_node/files/engine"
sys.path.insert(0, str(CHECKOUT / "plugin"))

#: Seconds for all commands of one node. Each command in the node may take 10 seconds.
TIMEOUT = 120
#: A script that prints an archive. It filters containerd's log, because containerd logs its configuration.
IN_THE_NODE = r"""
directory=$(mktemp -d)
cd "$directory"
mkdir journal
keep() {
  file=$1; shift
  timeout --kill-after 1 10 "$@" >"$file" 2>&1 </dev/null || echo "$1: exit code $?" >>"$file"
}
journal() {
  file=$1; shift
  keep "$file" journalctl --no-pager --quiet --output short-precise "$@"
  sed -i 's/\(start\(ing\)\? cri plugin"\? \(with \)\?config\).*/\1 (left out)/I' "$file"
}
units() {
  systemctl list-units --all --type=service --plain --no-legend --no-pager "$@"
}
for unit in $(units 'kube*' 'etcd*' 'containerd*' 'crio*' 'docker*' '*node-device*' | cut -d ' ' -f 1); do
  journal "journal/$unit.log" --unit "$unit"
done
# Without the kernel's messages, which are the machine's.
journal journal/all.log --lines 5000 _TRANSPORT=journal _TRANSPORT=stdout _TRANSPORT=syslog
units >units.txt 2>&1
keep containers.txt ctr --namespace k8s.io containers list
keep tasks.txt ctr --namespace k8s.io tasks list
keep processes.txt ps -e -o pid,ppid,stat,lstart,args
for command in status holders doctor; do
  keep "plugin-$command.txt" /usr/local/bin/node-device-plugin $command
done
keep files.txt find /etc/containerd /etc/crio /etc/docker /etc/cdi /var/run/cdi /etc/node-device-plugin \
  /etc/kubernetes /var/lib/kubelet/device-plugins /var/lib/node-devices -exec ls -ld --full-time {} +
cp -rL /var/log/pods pods 2>/dev/null
cp /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint kubelet_internal_checkpoint.json 2>/dev/null
tar -c .
rm -r "$directory"
"""
OBJECTS = {"nodes": "", "pods": "", "events": "", "daemonsets": "apps/v1"}


def of_node(directory: pathlib.Path, node: str) -> None:
    """Write a node's evidence into a new directory."""
    directory.mkdir(parents=True)
    with (directory / "container.log").open("wb") as log:
        subprocess.run([ENGINE, "logs", node], stdout=log, stderr=log, timeout=TIMEOUT, check=False)
    command: list[str | pathlib.Path] = [ENGINE, "exec", "--interactive", node, "sh"]
    done = subprocess.run(command, input=IN_THE_NODE.encode(), capture_output=True, timeout=TIMEOUT, check=False)
    if not done.stdout:
        raise OSError(done.stderr.decode().strip())
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")


def of_cluster(directory: pathlib.Path, kubeconfig: str) -> None:
    """Write the API server's objects into a new directory."""
    from node_device_plugin.cluster.api import Api, Place
    from node_device_plugin.cluster.kubeconfig import read

    directory.mkdir(parents=True)
    api = Api(read(kubeconfig))
    for kinds, group in OBJECTS.items():
        (directory / f"{kinds}.json").write_text(json.dumps(api.list(Place(kinds, group=group)), indent=1))


def main(directory: pathlib.Path, kubeconfig: str, nodes: list[str]) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = {node: pool.submit(of_node, directory / node, node) for node in nodes}
        if pathlib.Path(kubeconfig).exists():
            asked["cluster"] = pool.submit(of_cluster, directory / "cluster", kubeconfig)
    for name, one in asked.items():
        if error := one.exception():
            print(f" {name}: not all could be read: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
