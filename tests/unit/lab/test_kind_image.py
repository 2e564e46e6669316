"""Which image a kind cluster's nodes get, with doubles of the engine and of the built programs."""

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
CONTENT = "sha256:" + "0123456789abcdef" * 4
OWN = f"docker.io/kindest/node@{CONTENT}"
# It has the images that were built or pulled; its last build's context is kept.
ENGINE = """#!/bin/sh
echo "$*" >>"$STATE/calls"
case $1 in
  image) grep -qxF "$3" "$STATE/images" ;;
  pull) [ -e "$STATE/registry" ] && echo "$3" >>"$STATE/images" ;;
  build)
    while [ $# -gt 1 ]; do [ "$1" != --tag ] || echo "$2" >>"$STATE/images"; shift; done
    rm -rf "$STATE/context" && cp -r "$1" "$STATE/context" ;;
esac
"""
KUBEADM = """#!/bin/sh
case $1 in
  version) echo v1.37.2 ;;
  config) printf 'registry.k8s.io/%s\\n' kube-apiserver:v1.37.2 kube-controller-manager:v1.37.2 kube-scheduler:v1.37.2 \
    kube-proxy:v1.37.2 coredns/coredns:v1.14.0 pause:3.10.2 etcd:3.7.0-0 ;;
esac
"""
# Prints where a program is built, or fails; --where comes before its name where nothing may be built.
BUILD = """#!/bin/sh
for name; do :; done
[ -d "$STATE/$name" ] && echo "$STATE/$name"
"""
KUBERNETES = ("kubeadm", "kubelet", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def choose(tmp_path: Path):
    """Run the command in a checkout without images, with the programs of kind and Kubernetes built."""
    checkout = tmp_path / "checkout"
    for name in ("lab_kind", "lab_node"):
        shutil.copytree(CHECKOUT / "lab/roles" / name, checkout / "lab/roles" / name)
    program(checkout / "lab/programs/build", BUILD)
    program(tmp_path / "bin/docker", ENGINE)
    program(tmp_path / "kind/kind", f"\x7fELFv1.2kindest/node:v1.37.0@{CONTENT}beef")
    for name in KUBERNETES:
        program(tmp_path / "kubernetes" / name, KUBEADM if name == "kubeadm" else name)
    (tmp_path / "images").touch()

    def choose(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "calls").write_text("")
        given = {
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
            "NODE_DEVICES_ENGINE": "docker",
            "LAB_BASE": "official",  # the engine alone builds the base
            "STATE": f"{tmp_path}",
        }
        command = [checkout / "lab/roles/lab_kind/files/kind_node_image.py", *options]
        clean = {name: value for name, value in os.environ.items() if name != "KIND_NODE_IMAGE"}
        return subprocess.run(command, env=clean | given | environment, capture_output=True, text=True, check=False)

    return choose


def test_kinds_own_image_is_pulled_once(choose, tmp_path):
    (tmp_path / "registry").touch()
    assert choose().stdout == f"{OWN} pulled\n"
    assert choose().stdout == f"{OWN} present\n"
    assert "pull" not in (tmp_path / "calls").read_text()
    assert choose(KIND_NODE_IMAGE="mine:1").stdout == "mine:1 given\n"


def test_an_image_is_made_once_where_kinds_own_cannot_be_pulled(choose, tmp_path):
    first = choose()
    assert first.returncode == 0, first.stderr
    image, how = first.stdout.split()
    assert how == "built", first.stderr
    assert "building a node image instead" in first.stderr
    context = tmp_path / "context"
    assert (context / "version").read_text() == "v1.37.2\n"
    with tarfile.open(context / "control-plane.tar") as archive:
        images = json.load(archive.extractfile("manifest.json"))
        programs = {}
        for each in images:
            with tarfile.open(fileobj=archive.extractfile(each["Layers"][0])) as layer:
                programs[each["RepoTags"][0]] = layer.getnames()
    assert programs == {
        "registry.k8s.io/etcd:3.7.0-0": ["usr/local/bin/etcd"],
        **{
            f"registry.k8s.io/{name}:v1.37.2": [f"usr/local/bin/{name}"]
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        },
    }
    assert choose().stdout == f"{image} present\n"
    assert not {"pull", "build"} & {line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()}
    (tmp_path / "checkout/lab/roles/lab_kind/files/node/kind-node").write_text("another")
    assert choose("--made").stdout.split()[1] == "built"


@pytest.mark.parametrize("missing", ["kind", "kubernetes", "kubernetes/etcd"])
def test_a_program_that_is_not_built_is_named_with_its_command(choose, tmp_path, missing):
    shutil.move(tmp_path / missing, tmp_path / "away")
    done = choose("--made")
    assert (done.returncode, done.stdout) == (1, "")
    name = missing.partition("/")[0]
    assert f"kind: {name} is not built: run lab/programs/build {name}\n" in done.stderr
