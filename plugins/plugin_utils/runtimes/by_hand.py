# SPDX-License-Identifier: Apache-2.0
"""Runtimes that are recognised and left alone, each with what to do by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .cdi import Cdi, Change, Check, Refusal


class ByHand:
    """A runtime that is not ours to change. advice: what to do."""

    name = ""
    #: Whether the running daemon says what it makes of CDI.
    tells_cdi = True
    advice = ""

    def __init__(self, runtime: Mapping[str, Any]) -> None:
        self.runtime = runtime

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        raise NotImplementedError

    @property
    def program(self) -> str:
        return self.runtime["executable"]

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """What to do, where devices are given by CDI."""
        if cdi:
            yield f"the container runtime at {self.runtime['socket']} is {self.name}: {self.advice}"

    @property
    def cdi(self) -> Cdi:
        raise Refusal(self.advice)

    def plan(self, check: Check) -> Change | None:
        """Raises Refusal with the advice."""
        raise Refusal(self.advice)

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """Nothing of it was ever changed."""
        return None

    def check_command(self, path: str) -> list[str]:
        """Nothing is written."""
        return []

    def question(self, command: str) -> list[str]:
        """What asks the running daemon."""
        return [command, "runtime", "--socket", self.runtime["socket"], "-o", "json"]


class Microk8s(ByHand):
    """Its containerd reads what a template in the snap's data generates."""

    name = "MicroK8s'"
    advice = (
        'set enable_cdi = true below [plugins."io.containerd.grpc.v1.cri"] in '
        "/var/snap/microk8s/current/args/containerd-template.toml, and `snap restart microk8s`"
    )

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        return runtime["name"] == "containerd" and "/microk8s/" in _places(runtime)


class K0s(ByHand):
    """It merges the files of a folder itself."""

    name = "k0s'"
    advice = (
        'write /etc/k0s/containerd.d/cdi.toml with version = 2, [plugins."io.containerd.grpc.v1.cri"] and '
        "enable_cdi = true, and restart k0s (`k0s stop && k0s start`)"
    )

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        return runtime["name"] == "containerd" and "/k0s/" in _places(runtime)


class CriDockerd(ByHand):
    """It passes no CDI names on to Docker."""

    name = "cri-dockerd"
    advice = (
        "it does not pass the kubelet's CDI names on to Docker: run the kubelet with containerd "
        "(--container-runtime-endpoint=unix:///run/containerd/containerd.sock), or give devices with injection: "
        "device_nodes"
    )

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        return runtime["name"] == "cri-dockerd"


class Unknown(ByHand):
    """Anything else."""

    advice = (
        "containerd, CRI-O and Docker are known, also those of k3s, RKE2 and kind; name another socket in "
        "node_devices_cri_socket if the node has one of them too"
    )

    @property
    def name(self) -> str:
        return self.runtime["executable"]

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        return True


def _places(runtime: Mapping[str, Any]) -> str:
    """Where its parts lie; a distribution's are all in folders of its own."""
    return " ".join([runtime["socket"], runtime["executable"], runtime.get("config", {}).get("path", "")])
