"""lab/programs/build: which programs it builds, where they are, and what it does where they cannot be had."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).parents[3] / "lab" / "programs"
sys.path.insert(0, str(PROGRAMS))

import recipes  # noqa: E402

#: Go as far as the script calls it. It writes each call to $CALLS, and serves no module of a directory in $REFUSED.
GO = r"""#!/bin/sh
echo "$(basename "$PWD") $1 $GOTOOLCHAIN" >>"$CALLS"
case $1 in
  env) echo "go${GO_VERSION:-1.99.0}" ;;
  list)
    case " $REFUSED " in *" $(basename "$PWD") "*) echo "reading module: 404 Not Found" >&2; exit 1 ;; esac
    echo a/package ;;
  build)
    while [ "$1" != -o ]; do shift; done
    target=$2; shift 2
    for path; do echo "$path" >&2; name=${path%/v3}; echo built >"$target/${name##*/}"; done ;;
esac
"""


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Runs the script with a Go of the test's own; gives what it did."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    go = binaries / "go"
    go.write_text(GO)
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    for name in ("KUBERNETES_VERSION", "KUBERNETES_BIN_DIR", "KUBERNETES_1_36_BIN_DIR", "CONTAINERD_NEWEST_BIN_DIR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments, **environment):
        (tmp_path / "calls").write_text("")
        done = subprocess.run(
            [PROGRAMS / "build", *arguments], env={**os.environ, **environment}, capture_output=True, text=True
        )
        done.calls = (tmp_path / "calls").read_text().splitlines()
        return done

    return run


def built(done):
    assert done.returncode == 0, done.stderr
    directory = pathlib.Path(done.stdout.strip())
    return directory.name.rpartition("-")[0], sorted(path.name for path in directory.iterdir())


def test_the_newest_kubernetes_has_etcd_beside_it(build):
    name, programs = built(build("kubernetes"))
    assert name.startswith("kubernetes-1.37-1.37.")
    assert programs == sorted(
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", "kubectl", "kubelet"]
    )


def test_a_second_call_builds_nothing(build):
    first = build("kubernetes")
    assert {call.split()[2] for call in first.calls} == {"local"}
    second = build("kubernetes")
    assert (second.stdout, second.calls) == (first.stdout, [])


def test_one_program_and_later_the_others(build):
    assert built(build("containerd-2.4", "ctr")) == ("containerd-2.4-2.4.2", ["ctr"])
    assert build("--where", "containerd-2.4").returncode == 1
    assert len(built(build("containerd-2.4"))[1]) == 3
    assert build("--where", "containerd-2.4").returncode == 0


def test_a_build_that_was_killed_leaves_nothing_for_ever(build):
    directory = pathlib.Path(build("etcd").stdout.strip())
    left = directory.parent / f"{directory.name}.scratch-x"
    others = directory.parent / "kind-1.scratch-x"
    for each in (left, others):
        each.mkdir()
    (directory / "etcd").unlink()
    assert built(build("etcd")) == ("etcd-3.7.3", ["etcd"])
    assert (left.exists(), others.exists()) == (False, True)


def test_another_minor_by_its_number(build):
    assert built(build("kubernetes", "kubelet", KUBERNETES_VERSION="1.36"))[0].startswith("kubernetes-1.36-1.36.")
    refused = build("kubernetes", KUBERNETES_VERSION="1.30")
    assert refused.returncode == 2
    assert "KUBERNETES_VERSION=1.30 is not pinned; use one of 1.37, 1.36, 1.34, 1.31" in refused.stderr


def test_the_next_minor_where_the_newest_is_not_served(build):
    done = build("kubernetes", "kubelet", REFUSED="kubernetes-1.37")
    assert built(done)[0].startswith("kubernetes-1.36-")
    assert done.stderr.splitlines()[-1] == "programs: kubernetes-1.37 could not be fetched: using kubernetes-1.36"


def test_a_minor_that_was_asked_for_is_not_replaced(build):
    done = build("kubernetes", "kubelet", REFUSED="kubernetes-1.37", KUBERNETES_VERSION="1.37")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the modules of kubernetes-1.37 could not be fetched" in done.stderr


def test_unknown_names(build):
    assert "kubernets is not pinned; use one of cdi-judge, cdi-judge-0.8, containerd-1.7," in build("kubernets").stderr
    assert "containerd-2.4 has no program kubelet" in build("containerd-2.4", "kubelet").stderr


def test_the_environment_names_what_is_built_and_leaves_what_is_set(build):
    assert build("--env").stdout.strip() == ""
    kubelet = build("kubernetes", "kubelet").stdout
    assert build("--env").stdout == f"KUBERNETES_BIN_DIR={kubelet}"
    # Set to nothing, it means the stand-in.
    assert build("--env", KUBERNETES_BIN_DIR="").stdout.strip() == ""


def test_every_directory_pins_what_its_recipe_builds():
    assert {recipes.recipe_of(name).module for name in recipes.pinned()} == {
        recipe.module for recipe in recipes.RECIPES.values()
    }
    for pin in map(recipes.Pin, recipes.pinned()):
        minor = pin.name.rpartition("-")[2]
        assert not minor[0].isdigit() or pin.version.startswith(f"{minor}."), pin.name
        assert f"{pin.recipe.module} v{pin.version} h1:" in (pin.directory / "go.sum").read_text(), pin.name
