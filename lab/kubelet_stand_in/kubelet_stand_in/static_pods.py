"""Runs the pods of the manifests in a directory. A changed manifest restarts its pod."""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

import yaml

from . import klog
from .pods import ManifestError, Pod, parse_pod
from .stand_in import StandInKubelet


class _Read(NamedTuple):
    """A manifest that was read. uid: its pod's uid; empty without a valid pod. seen: attributes that show a change."""

    uid: str
    seen: tuple[int, int, int]


class StaticPods:
    """Makes a kubelet's pods match the manifests in ``directory``."""

    def __init__(self, directory: str, kubelet: StandInKubelet) -> None:
        self._directory = directory
        self._kubelet = kubelet
        self._read: dict[str, _Read] = {}
        self._ending: dict[str, asyncio.Future[None]] = {}

    def read_first(self) -> None:
        """Read the manifests before the kubelet starts, so that the kubelet adopts running pods."""
        for pod, _ in self._changed():
            self._kubelet.source[pod.uid] = pod

    async def look(self) -> None:
        """Compare the directory with the pods, then end and start pods."""
        before = {path: read.uid for path, read in self._read.items()}
        changed = self._changed()
        for path, uid in before.items():
            if uid and self._read.get(path, _Read("", (0, 0, 0))).uid != uid:
                klog.info(2, "SyncLoop REMOVE", source="file", path=path)
                # Do not wait here, because a pod that ends slowly must not delay other pods.
                self._ending[path] = asyncio.ensure_future(self._kubelet.remove_pod(uid))
        for pod, path in changed:
            if before.get(path) != pod.uid:
                klog.info(2, "SyncLoop ADD", source="file", pods=pod.full_name)
                if path in self._ending:
                    await self._ending.pop(path)
                self._kubelet.source[pod.uid] = pod
                await self._kubelet.pods.add(pod)

    def _changed(self) -> list[tuple[Pod, str]]:
        """Read the manifests that changed since the last check, in the order of their names."""
        pods = []
        found: dict[str, _Read] = {}
        for entry in sorted(self._entries(), key=lambda entry: entry.name):
            try:
                status = entry.stat()
                seen = (status.st_mtime_ns, status.st_size, status.st_ino)
                known = self._read.get(entry.path)
                if known is not None and known.seen == seen:
                    found[entry.path] = known
                    continue
                found[entry.path] = _Read("", seen)
                with open(entry.path, "rb") as file:
                    pod = parse_pod(yaml.safe_load(file), entry.path, self._kubelet.node_name)
            except (OSError, yaml.YAMLError, ManifestError) as error:
                klog.error("Could not process manifest file", error, path=entry.path)
                continue
            found[entry.path] = _Read(pod.uid, seen)
            pods.append((pod, entry.path))
        self._read = found
        return pods

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._directory) as entries:
                return [entry for entry in entries if not entry.name.startswith(".") and entry.is_file()]
        except FileNotFoundError:
            return []
