"""The real programs that the project builds, and what each build needs besides its go.mod and go.sum.

A directory has its recipe's name; if several minors are pinned, a dash and the minor version follow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent


class ProgramError(Exception):
    """A program cannot be built or pinned. The message gives the reason and the solution."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How to build programs from a Go module."""

    module: str
    #: The programs' packages, relative to the module. "" is the module itself, and "." is our directory's Go package.
    packages: tuple[str, ...] = ("",)
    #: Pairs of Go's name for a program and its usual name, if they differ.
    names: tuple[tuple[str, str], ...] = ()
    tags: str = ""
    #: Whether the build needs a C compiler.
    cgo: bool = False
    #: Go variables for the version, with the placeholders {version}, {major} and {minor}.
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(package if package == "." else f"{self.module}/{package}".rstrip("/") for package in self.packages)

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs' names, in the order of the packages."""
        # Go names a program after the last element of its path that is not a version.
        built = [re.sub(r"/v\d+$", "", path).rpartition("/")[2] for path in self.paths]
        return tuple(dict(self.names).get(name, name) for name in built)


def _containerd(module: str, *tags: str) -> Recipe:
    return Recipe(
        module,
        ("cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"),
        # These snapshotters need C libraries; lab nodes use overlayfs.
        tags=",".join(("no_btrfs", "no_devmapper", "no_zfs", *tags)),
        variables=((f"{module}/version.Version", "v{version}"), (f"{module}/version.Package", module)),
    )


def _helm(major: int, *more: tuple[str, str]) -> Recipe:
    module = f"helm.sh/helm/v{major}"
    variables = (("internal/version.version", "v{version}"), *more)
    return Recipe(module, ("cmd/helm",), variables=tuple((f"{module}/{name}", value) for name, value in variables))


_KUBERNETES = ("kubelet", "kubeadm", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_KUBERNETES_VERSION = {
    "gitVersion": "v{version}",
    "gitMajor": "{major}",
    "gitMinor": "{minor}",
    # A module does not record its commit; go.sum verifies its content.
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "archive",
}

RECIPES = {
    "kubernetes": Recipe(
        "k8s.io/kubernetes",
        tuple(f"cmd/{program}" for program in _KUBERNETES),
        variables=tuple(
            (f"{package}.{name}", value)
            for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
            for name, value in _KUBERNETES_VERSION.items()
        ),
    ),
    "etcd": Recipe("go.etcd.io/etcd/server/v3", names=(("server", "etcd"),)),
    "containerd": _containerd("github.com/containerd/containerd/v2"),
    "containerd-1.7": _containerd("github.com/containerd/containerd", "no_aufs"),
    "nvidia-container-toolkit": Recipe(
        "github.com/NVIDIA/nvidia-container-toolkit",
        ("cmd/nvidia-ctk", "cmd/nvidia-cdi-hook"),
        cgo=True,
        variables=(("github.com/NVIDIA/nvidia-container-toolkit/internal/info.version", "{version}"),),
    ),
    "kind": Recipe("sigs.k8s.io/kind"),
    "helm": _helm(4),
    # Without a cluster, Helm 3 assumes the minor of its Kubernetes client, which its build sets.
    "helm-3": _helm(3, ("pkg/chartutil.k8sVersionMinor", "37"), ("pkg/lint/rules.k8sVersionMinor", "37")),
    "promtool": Recipe("github.com/prometheus/prometheus", ("cmd/promtool",)),
    # This is our own main package, which reads CDI specs with the reference library, as runtimes do.
    "cdi-judge": Recipe(
        "tags.cncf.io/container-device-interface", (".",), names=((".", "cdi-judge"), ("cdi-judge-0.8", "cdi-judge"))
    ),
}


def recipe_of(name: str) -> Recipe:
    """The recipe for a directory's name. Raises ProgramError if there is none."""
    for key in (name, re.sub(r"-[0-9.]+$", "", name)):
        if key in RECIPES:
            return RECIPES[key]
    raise ProgramError(f"unknown program {name!r}; use one of {', '.join(pinned())}")


def pinned() -> list[str]:
    """The names of all pinned programs, oldest minor first."""
    names = [path.parent.name for path in HERE.glob("*/go.sum")]
    return sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def minors(of: str) -> list[str]:
    """The pinned minors of a program, newest first, e.g. kubernetes-1.37, kubernetes-1.36 for `kubernetes`."""
    return [name for name in reversed(pinned()) if re.fullmatch(rf"{of}-[0-9.]+", name)]


@dataclasses.dataclass(frozen=True)
class Pin:
    """One pinned program: a directory with go.mod and go.sum."""

    name: str

    @property
    def directory(self) -> pathlib.Path:
        return HERE / self.name

    @property
    def recipe(self) -> Recipe:
        return recipe_of(self.name)

    @property
    def version(self) -> str:
        """The pinned version, without v. Raises ProgramError if go.mod does not contain it."""
        path = self.directory / "go.mod"
        if not path.exists():
            raise ProgramError(f"{self.name} is not pinned; use one of {', '.join(pinned())}")
        found = re.search(rf"^(?:require |\s+){re.escape(self.recipe.module)} v(\S+)", path.read_text(), re.M)
        if not found:
            raise ProgramError(f"{path} does not require {self.recipe.module}: lab/programs/pin {self.name} VERSION")
        return found[1]

    @property
    def go_version(self) -> str:
        """The oldest Go that can build the programs, for example 1.26.0."""
        found = re.search(r"^go (\S+)", (self.directory / "go.mod").read_text(), re.M)
        return found[1] if found else "1.24"

    @property
    def digest(self) -> str:
        """A hash of the build's inputs: the pinned modules, our Go files, and the recipe."""
        parts = hashlib.sha256(repr(self.recipe).encode())
        for path in sorted(self.directory.iterdir()):
            parts.update(path.name.encode() + b"\0" + path.read_bytes())
        return parts.hexdigest()[:12]
