"""What reads what others wrote, each as a function of bytes. A target fails by raising; refusals in words are fine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import tempfile
import tomllib
from collections.abc import Callable
from typing import Any
from unittest import mock

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import journal

from node_device_plugin.cdi.directories import check_file, may_have
from node_device_plugin.declaration import DeclarationError, cdi
from node_device_plugin.declaration import configuration_file as configuration
from node_device_plugin.kubelet import checkpoint as kubelet_checkpoint
from node_device_plugin.runtime.configuration import toml_edit
from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig
from node_device_plugin.status_api import http

_DIRECTORY = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
_TABLE = "io.containerd.grpc.v1.cri"
_WANTED = {"enable_cdi": True, "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"]}


def _file(name: str, content: bytes) -> str:
    path = _DIRECTORY / name
    path.write_bytes(content)
    return str(path)


def cdi_spec(content: bytes) -> None:
    """A CDI spec of anybody's, as JSON and as YAML: `cdi check` says what is wrong, and a good one can be kept."""
    for name in ("spec.json", "spec.yaml"):
        found = check_file(_file(name, content), None)
        assert all(isinstance(str(problem), str) for problem in found.problems)
        assert found.problems or found.kind, "a spec without a kind was called good"
        assert found.refusals or may_have(content, [found.kind]), "a spec of a needed kind would not be read"
        assert "Plain(" not in repr(found.spec), "a scalar was not read"


def checkpoint(content: bytes) -> None:
    """The kubelet's checkpoint."""
    _file(kubelet_checkpoint.FILE_NAME, content)
    with contextlib.suppress(kubelet_checkpoint.CheckpointError):
        kubelet_checkpoint.read_checkpoint(str(_DIRECTORY))


def http_request(content: bytes) -> None:
    """What anybody sends to the HTTP port."""
    refusals = (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
    with contextlib.suppress(*refusals):
        words = asyncio.run(_request(content))
        assert not any(set(word) & set(" \r\n") for word in words)


async def _request(content: bytes) -> tuple[str, str]:
    reader = asyncio.StreamReader()
    reader.feed_data(content)
    reader.feed_eof()
    return await http._request(reader)


def kubeconfig_file(content: bytes) -> None:
    """A kubeconfig of somebody else's. No program that it names is run, and no other file is read."""
    path, refusal = _file("kubeconfig", content), kubeconfig.KubeconfigError("not here")
    with (
        mock.patch.object(kubeconfig._Kubeconfig, "_of_program", side_effect=refusal),
        mock.patch.object(pathlib.Path, "read_bytes", side_effect=FileNotFoundError(2, "none")),
    ):
        try:
            access = kubeconfig.read(path)
        except kubeconfig.KubeconfigError:
            return
    assert access.server.startswith(("http://", "https://"))


def toml(content: bytes) -> None:
    """An edit of containerd's configuration changes CDI's keys and nothing else."""
    text = content.decode("utf-8", "replace")
    try:
        after = _parsed(toml_edit.edited(text.replace("\r", ""), _TABLE, _WANTED))
    except UnsupportedConfig:
        return
    assert {key: after["plugins"][_TABLE][key] for key in _WANTED} == _WANTED
    assert _without_cdi(after) == _without_cdi(_parsed(text.replace("\r", "")))


def _parsed(text: str) -> dict[str, Any]:
    # As text, because nan is not equal to nan.
    return tomllib.loads(text, parse_float=str)


def _without_cdi(data: dict[str, Any]) -> dict[str, Any]:
    plugins = data.setdefault("plugins", {})
    plugins[_TABLE] = {key: value for key, value in plugins.get(_TABLE, {}).items() if key not in _WANTED}
    return data


def ledger_file(content: bytes) -> None:
    """What an uninstall goes by."""
    _file("ledger.json", content)
    # Files of the same moment and size look alike.
    ledger._entries_in.cache_clear()
    try:
        read = ledger.Ledger(str(_DIRECTORY))
    except ledger.LedgerConflict:
        return
    read.of("somebody")
    read.directories_of("somebody")


def journal_file(content: bytes) -> None:
    """What a recovery goes by; a disk may have lost its end."""
    _file(journal.NAME, content)
    assert journal.Journal(str(_DIRECTORY)).find("no such step") is None


def configuration_file(content: bytes) -> None:
    """The plugin's configuration; what is taken can be rendered."""
    try:
        loaded = configuration.load(_file("config.yaml", content))
    except DeclarationError:
        return
    cdi.render_specs(loaded.configuration.resources)


#: By the name of the corpus.
TARGETS: dict[str, Callable[[bytes], None]] = {
    "cdi_spec": cdi_spec,
    "checkpoint": checkpoint,
    "configuration": configuration_file,
    "http": http_request,
    "journal": journal_file,
    "kubeconfig": kubeconfig_file,
    "ledger": ledger_file,
    "toml": toml,
}
