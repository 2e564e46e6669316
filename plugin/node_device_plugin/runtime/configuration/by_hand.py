"""Adapters of runtimes that only the user changes. Each adapter has a message with the manual steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...declaration.cdi import always_on, version_tuple
from .adapter import Adapter
from .cdi import Change, UnsupportedConfig
from .containerd import Containerd
from .containerd_config import ENABLE, TABLES, wanted_keys
from .toml_edit import header, key_lines, lenient


class ByHand(Adapter):
    """A runtime that we do not change."""

    by_hand = True

    @property
    def advice(self) -> str:
        """The manual steps."""
        raise NotImplementedError

    @property
    def suffices(self) -> bool:
        """Whether CDI is already effective."""
        return self.cdi.suffices

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Yield the advice if CDI is needed but not effective."""
        if cdi and not self.suffices:
            yield f"the container runtime at {self.runtime['socket']} is {self.name}: {self.advice}"

    def plan(self) -> Change | None:
        """Return None if CDI is effective. Otherwise raise UnsupportedConfig with the advice."""
        if not self.suffices:
            raise UnsupportedConfig(self.advice)
        return None

    def undo(self, path: str, ours: bool, before: str | None) -> Change | None:
        """Return None, because we never change this runtime's files."""
        return None


class _Distribution(ByHand, Containerd):
    """A distribution's containerd. The distribution generates the files, and we do not restart the service."""

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Return containerd's obstacles, or else the advice."""
        return iter([*Containerd.obstacles(self, cdi)] or [*super().obstacles(cdi)])

    @property
    def suffices(self) -> bool:
        if not self.config["effective"]:
            # `config dump` may fail, because a snap's program may need the snap's libraries. From 2.4 on, CDI is always
            # on, and the running daemon reports its directories.
            return always_on(self.version)
        return super().suffices

    @property
    def _wanted(self) -> str:
        lines = key_lines(wanted_keys(self.cdi) if self.config["effective"] else {ENABLE: True})
        return " and ".join(lines)


class Microk8s(_Distribution):
    """MicroK8s generates containerd's configuration from a template. Source: canonical/microk8s."""

    name = "MicroK8s' containerd"

    @property
    def advice(self) -> str:
        file_version = lenient(self.config["content"] or "").get("version")
        table = TABLES.get(file_version, TABLES[2])
        return (
            f"set {self._wanted} below {header(table)} in /var/snap/microk8s/current/args/containerd-template.toml, "
            "then run `snap restart microk8s.daemon-containerd`"
        )


class K0s(_Distribution):
    """k0s imports the files of a directory, and restarts containerd for a new file. Source: k0s, docs/runtime.md."""

    name = "k0s' containerd"

    @property
    def advice(self) -> str:
        # k0s 1.36 has containerd 2, which does not start with a version 2 file.
        file_version = 3 if version_tuple(self.version) >= (2, 0, 0) else 2
        return (
            f"write /etc/k0s/containerd.d/cdi.toml with version = {file_version}, {header(TABLES[file_version])} and "
            f"{self._wanted}; k0s then restarts its containerd by itself, if {self.config['path']} begins with # "
            "k0s_managed=true"
        )


class CriDockerd(ByHand):
    """cri-dockerd does not pass CDI names to Docker.

    Source: cri-dockerd up to 0.4.3. A change of March 2026 (Mirantis/cri-dockerd#522) is in no release yet.
    """

    name = "cri-dockerd"
    advice = (
        "it does not pass the kubelet's CDI device names to Docker: run the kubelet with containerd "
        "(--container-runtime-endpoint=unix:///run/containerd/containerd.sock; k3s without --docker), or set "
        "injection: device_nodes for the resources"
    )


class Unknown(ByHand):
    """Any other runtime."""

    advice = (
        "only containerd and CRI-O are supported, also in k3s, RKE2 and kind: if the node runs one of them too, set "
        "node_devices_cri_socket to its socket"
    )

    def __init__(self, runtime: Mapping[str, Any]) -> None:
        super().__init__(runtime)
        self.name = runtime["executable"]
