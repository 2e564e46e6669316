"""`make kind` with doubles of kind, kubectl and the engine that record their calls. Scenario `kind` has real ones."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
INVENTORY = Path(sys.executable).with_name("ansible-inventory")
RECORD = 'echo "${0##*/} $*" >>"$CALLS"\n'
KIND = RECORD + (
    'case "$1 $2" in\n'
    '"get clusters") cat "$STATE" 2>/dev/null || true ;;\n'
    '"create cluster") [ -z "${BROKEN-}" ] || { printf "%b" "$BROKEN" >&2; exit 1; }\n'
    'echo kind >"$STATE"; echo c0ffee >"$STATE.container" ;;\n'
    '"delete cluster") rm "$STATE" ;;\n'
    '"get kubeconfig") [ ! -e "$STATE.stopped" ] || { echo "Error: not running" >&2; exit 1; }\n'
    'echo "a: kubeconfig" ;;\n'
    '"get nodes") echo kind-control-plane; echo kind-worker ;;\n'
    '"load image-archive") echo sha256:new >"$STATE.image" ;;\n'
    "esac"
)
ENGINE = RECORD + (
    'case "$1 $2" in "ps --all") cat "$STATE.container" ;; exec*) cat "$STATE.image" 2>/dev/null || exit 1 ;;\n'
    '"network inspect") echo "${DNS-true}" ;; esac'
)
# After dp1-2 was deleted and a restart ended dp1-1: its answers, without the --kubeconfig that each call begins with.
PODS = RECORD + (
    "shift 2\n"
    'case "$*" in\n'
    "delete*metadata.name=dp1-1) echo 'pod \"dp1-1\" deleted' ;;\n"
    '"get pods --output name") echo pod/dp1-3 ;;\n'
    'apply*) cat >>"$STATE.applied" ;;\n'
    "esac"
)
MARK = "# Made by lab_kind, its control plane in container "
# A program is built if the test has a double of it.
BUILT = 'eval "program=\\${$#}"; ls "$PROGRAMS/$program" >/dev/null && echo "$PROGRAMS"'
BUILD = "echo localhost/plugin:1 sha256:new linux/amd64; echo 80 MB; echo .image/plugin.tar"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What of a checkout the plays need, beside a packaging/image/build that builds nothing."""
    root = tmp_path / "checkout"
    for name in ("roles", "playbooks", "plugins", "plugin", "meta", "inventories", "lab"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(CHECKOUT / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("ansible.cfg", "galaxy.yml", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, root / name)
    for name, body in {
        "packaging/image/build": BUILD,
        "lab/programs/build": BUILT,
        "lab/roles/lab_kind/files/kind_node_image.py": "echo localhost/kind:made present",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        _program(root / name, body)
    collections = root / ".ansible/collections/ansible_collections/nodedevices"
    collections.mkdir(parents=True)
    (collections / "kubernetes").symlink_to(root)
    (collections / "lab").symlink_to(root / "lab")
    return root


def _program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def play(checkout: Path, tmp_path: Path):
    """Run a playbook with these programs in PATH, and those of the system that a shell needs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "cat", "rm", "env", "sleep", "id", "uname", "mkdir", "chmod", "chown", "rmdir", "ls"):
        (programs / name).symlink_to(shutil.which(name) or pytest.fail(name))
    calls = tmp_path / "calls"

    def play(playbook: str, **given: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        """Variables of the environment are in capitals, programs are not: these stay for the next run."""
        for name, body in given.items():
            if name.islower():
                _program(programs / name, body)
        calls.write_text("")
        environment = {
            "PATH": f"{programs}",
            "HOME": f"{tmp_path}",
            "LC_ALL": "C.UTF-8",
            "CALLS": f"{calls}",
            "STATE": f"{tmp_path}/state",
            "PROGRAMS": f"{programs}",
        } | {name: value for name, value in given.items() if name.isupper()}
        done = subprocess.run(
            [sys.executable, PLAYBOOK, f"lab/playbooks/{playbook}"],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done, calls.read_text().splitlines()

    return play


def test_a_missing_engine_and_missing_programs_are_named_with_what_helps(play):
    done, _ = play("kind_up.yml")
    assert "the command ps fails for each of: docker podman; install docker.io or podman" in _said(done)
    done, _ = play("kind_up.yml", docker=ENGINE)
    commands = "lab/programs/build kind; lab/programs/build kubernetes kubectl"
    assert f"kind and kubectl must be built first: {commands}" in _said(done)


def test_the_installed_collection_says_that_it_needs_a_checkout(play, checkout):
    shutil.rmtree(checkout / "lab/programs")
    done, calls = play("kind_up.yml", kind=KIND, kubectl=RECORD, docker=ENGINE)
    assert "Role lab_kind needs a checkout of node-devices" in _said(done)
    assert calls == []


def _said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0
    return " ".join(done.stdout.split())


def test_the_cluster_is_made_once_gets_the_image_and_is_said_to_be_stopped(play, checkout, tmp_path):
    done, calls = play("kind_up.yml", kind=KIND, kubectl=RECORD, docker=ENGINE)
    assert done.returncode == 0, done.stdout
    config = checkout / "lab/roles/lab_kind/files/cluster.yaml"
    kubeconfig = checkout / ".lab" / "kind.kubeconfig"
    made = f"kind create cluster --name kind --wait 3m --kubeconfig {kubeconfig} --config {config}"
    made += " --image localhost/kind:made"
    loaded = f"kind load image-archive --name kind {checkout}/.image/plugin.tar"
    assert {made, loaded} < set(calls)
    assert calls.index(made) < calls.index(loaded)
    assert kubeconfig.read_text() == f"{MARK}c0ffee\na: kubeconfig\n"
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    done, calls = play("kind_up.yml")
    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout
    assert not {made, loaded} & set(calls)
    (tmp_path / "state.stopped").touch()
    done, _ = play("kind_up.yml")
    assert "its kubeconfig cannot be read (Error: not running)" in _said(done)
    assert "docker start kind-control-plane kind-worker; or: make kind-down" in _said(done)
    done, calls = play("kind_down.yml")
    assert f"kind delete cluster --name kind --kubeconfig {kubeconfig}" in calls
    assert not kubeconfig.exists()


def test_another_cluster_of_the_name_is_neither_used_nor_deleted(play, checkout, tmp_path):
    (tmp_path / "state").write_text("kind\n")
    (tmp_path / "state.container").write_text("decaf\n")

    def refused(playbook: str) -> None:
        done, calls = play(playbook, kind=KIND, kubectl=RECORD, docker=ENGINE)
        assert "the cluster kind exists, but `make kind` in this checkout did not create it" in _said(done)
        assert "KIND_EXPERIMENTAL_PROVIDER=docker kind delete cluster --name kind" in _said(done)
        assert [call for call in calls if call.startswith("kind ")] == ["kind get clusters"]

    refused("kind_up.yml")
    # Nor is it ours because we had one once.
    (checkout / ".lab" / "kind.kubeconfig").write_text(f"{MARK}c0ffee\na: kubeconfig\n")
    refused("kind_down.yml")


def test_the_environment_chooses_image_and_engine_and_why_there_is_no_cluster_is_one_sentence(play, checkout):
    noise = "failed to pull\\na trace of goroutines"
    chosen = {"KIND_NODE_IMAGE": "kindest/node:none", "KIND_EXPERIMENTAL_PROVIDER": "podman"}
    chosen["BROKEN"] = f"Creating\\nERROR: failed to create cluster: {noise}\\nError: no such host\\n"
    done, calls = play("kind_up.yml", kind=KIND, kubectl=RECORD, docker=ENGINE, podman=ENGINE, **chosen)
    assert any(call.startswith("kind create ") and call.endswith(" --image kindest/node:none") for call in calls)
    assert {call.split()[0] for call in calls} == {"podman", "kind"}
    said = _said(done)
    assert "the cluster: ERROR: failed to create cluster: failed to pull ... Error: no such host." in said
    assert "goroutines" not in said
    assert not (checkout / ".lab" / "kind.kubeconfig").exists()


def test_podmans_network_must_resolve_names(play):
    network = {"KIND_EXPERIMENTAL_PROVIDER": "podman", "DNS": "false"}
    done, calls = play("kind_up.yml", kind=KIND, kubectl=RECORD, podman=ENGINE, **network)
    assert "network kind has no name resolution" in _said(done)
    assert "podman network rm kind" in _said(done)
    assert not any(call.startswith("kind create ") for call in calls)


def test_a_pod_that_ended_is_run_again_and_the_second_not_beside_the_third(play, tmp_path):
    play("kind_up.yml", kind=KIND, kubectl=RECORD, docker=ENGINE)
    done, calls = play("kind_pods.yml", kubectl=PODS)
    assert done.returncode == 0, done.stdout
    ended = [call.split()[-1] for call in calls if " delete pod " in call]
    assert ended == [f"status.phase=Failed,metadata.name=dp1-{number}" for number in (1, 2, 3)]
    assert re.findall(r"name: (dp\S+)", (tmp_path / "state.applied").read_text()) == ["dp1-1"]
    assert "dp1-2 does not exist" in done.stdout


def test_the_inventory_is_the_running_clusters_workers(checkout, tmp_path):
    nodes = {"items": [{"metadata": {"name": name}} for name in ("kind-worker", "kind-worker2")]}
    (tmp_path / "answer").write_text(json.dumps(nodes))
    (checkout / ".lab" / "bin").mkdir(parents=True)
    _program(checkout / ".lab" / "bin" / "kubectl", f"cat {tmp_path}/answer")
    command = [sys.executable, INVENTORY, "-i", "inventories/kind", "--list"]

    def ask() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)

    refused = ask()
    assert refused.returncode != 0
    assert "this checkout has no kind cluster: make kind" in refused.stderr
    (checkout / ".lab" / "kind.kubeconfig").write_text("a: kubeconfig\n")
    said = json.loads(ask().stdout)
    assert said["kind_workers"]["hosts"] == ["kind-worker", "kind-worker2"]
    values = said["_meta"]["hostvars"]
    assert values["kind-worker"]["node_devices_api_only"] is True
    assert [device["id"] for device in values["kind-worker"]["imaginary_devices"]["mydevice-1"]] == ["dev1-1"]
    assert len(values["kind-worker2"]["imaginary_devices"]["mydevice-3"]) == 3
