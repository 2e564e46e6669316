# SPDX-License-Identifier: Apache-2.0
"""Docker, which a kubelet uses only through cri-dockerd, but which gives CDI devices to its own containers.

``features.cdi`` of /etc/docker/daemon.json; on by default from 28.2. What is an option of dockerd's as well must not be
in the file beside it. Source: docs.docker.com, dockerd (findConfigurationConflicts).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple

from .cdi import SPEC_DIRS, Cdi, Change, Check, UnsupportedConfig

_OLDEST = (25, 0, 0)
_ON_BY_DEFAULT = (28, 2, 0)
_DIRS = "cdi-spec-dirs"
_FEATURE, _DIR = "--feature", "--cdi-spec-dir"
# Go's template: what `docker info` knows, in the form of the plugin's own answer, and how many a restart would end.
_QUESTION = (
    '{"cdi": {"enabled": {{if .CDISpecDirs}}true{{else}}false{{end}}, "spec_dirs": {{json .CDISpecDirs}}}, '
    '"ends": {{if .LiveRestoreEnabled}}0{{else}}{{.ContainersRunning}}{{end}}}'
)


class Docker:
    """One node's dockerd. runtime: as module node_preflight returned it."""

    name = "Docker"
    #: Whether the running daemon says what it makes of CDI.
    tells_cdi = True
    #: Whether its containers go on while it is restarted: only with live-restore, which the daemon tells.
    keeps_containers = False
    #: Whether it is not ours to restart.
    by_hand = False

    def __init__(self, runtime: Mapping[str, Any]) -> None:
        self.runtime = runtime
        self.config = runtime["config"]
        self.version = runtime["version"]

    @classmethod
    def claims(cls, runtime: Mapping[str, Any]) -> bool:
        return runtime["name"] == "dockerd"

    @property
    def program(self) -> str:
        return self.runtime["executable"]

    def ended(self, answer: Mapping[str, Any]) -> tuple[int, str]:
        """How many containers a restart would end, by the daemon's answer, and what to do so that it does not."""
        reload = f"run systemctl reload {self.runtime.get('unit') or 'docker'}"
        return answer.get("ends") or 0, f'set "live-restore": true in {self.config["path"]} and {reload}'

    def obstacles(self, cdi: bool) -> Iterator[str]:
        """Too old a version, or a file that is no JSON."""
        if cdi and (self.version is None or version_tuple(self.version) < _OLDEST):
            yield f"Docker {self.version or 'of an unknown version'} knows no CDI: upgrade it to 25 or later"
        try:
            self._parsed()
        except UnsupportedConfig as error:
            yield f"{self.config['path']}: {error}"

    @property
    def cdi(self) -> Cdi:
        """What its file makes of CDI. Raises UnsupportedConfig where that is not what dockerd takes."""
        features = self._parsed().get("features")
        dirs = self._parsed().get(_DIRS)
        if not isinstance(features, dict | None):
            raise UnsupportedConfig("features in it is not an object; fix it first")
        if not isinstance(dirs, list | None) or not all(isinstance(each, str) for each in dirs or ()):
            raise UnsupportedConfig(f"{_DIRS} in it is not a list of texts; fix it first")
        given = self._given.get(_FEATURE, ())
        features = {**(features or {}), **dict(_feature(word) for word in given)}
        enabled = features.get("cdi", version_tuple(self.version) >= _ON_BY_DEFAULT)
        return Cdi(enabled is True, tuple(self._given.get(_DIR) or dirs or SPEC_DIRS))

    def plan(self, check: Check) -> Change | None:
        """The least change of daemon.json; None where it makes CDI effective as it is."""
        cdi = self.cdi
        if cdi.suffices:
            return None
        if not cdi.enabled and _FEATURE in self._given:
            raise self._both("features", _FEATURE, [f"{_FEATURE}=cdi"])
        if cdi.missing_dirs and _DIR in self._given:
            raise self._both(_DIRS, _DIR, [f"{_DIR}={directory}" for directory in cdi.missing_dirs])
        data = self._parsed()
        if not cdi.enabled:
            data["features"] = {**(data.get("features") or {}), "cdi": True}
        if cdi.missing_dirs:
            data[_DIRS] = cdi.wanted_dirs
        return Change(self.config["real_path"], self.config["content"], self._written(data))

    @property
    def _given(self) -> Mapping[str, list[str]]:
        return self.config.get("given") or {}

    def _both(self, key: str, option: str, wanted: list[str]) -> UnsupportedConfig:
        """Why the file cannot have a key, and what to do."""
        unit = self.runtime.get("unit") or "its command line"
        there = " ".join(f"{option}={value}" for value in self._given[option])
        return UnsupportedConfig(
            f"{unit} has {there}, and dockerd does not start where {key} is in its file as well: have "
            f"{' '.join(wanted)} there, too, and restart Docker"
        )

    def undo(self, path: str, ours: bool, before: str | None, check: Check) -> Change | None:
        """The file as it was; of one that others changed since, the two keys."""
        now = self.config["content"]
        if self.config["real_path"] != path or now is None:
            return None
        if ours:
            return Change(path, now, before)
        data, old = self._parsed(), json.loads(before or "{}")
        features = {**(data.get("features") or {})}
        features.pop("cdi", None)
        if "cdi" in (old.get("features") or {}):
            features["cdi"] = old["features"]["cdi"]
        _set(data, "features", features if features or "features" in old else None)
        _set(data, _DIRS, old.get(_DIRS))
        return Change(path, now, self._written(data))

    def check_command(self, path: str) -> list[str]:
        """What must succeed before the file is written; ``{staged}`` is its new text."""
        return [self.program, "--validate", "--config-file", "{staged}"]

    def question(self, command: str) -> list[str]:
        """What asks the running daemon: it speaks no CRI."""
        return ["docker", "--host", f"unix://{self.runtime['socket']}", "info", "--format", _QUESTION]

    def _parsed(self) -> dict[str, Any]:
        text = self.config["content"]
        if self.config["exists"] and text is None:
            raise UnsupportedConfig(f"it cannot be read as text: {self.config['why_no_text']}; fix it first")
        try:
            data = json.loads(text or "{}")
        except ValueError as error:
            raise UnsupportedConfig(f"it is not valid JSON ({error}); fix it first") from error
        if not isinstance(data, dict):
            raise UnsupportedConfig("it is not a JSON object; fix it first")
        return data

    def _written(self, data: Mapping[str, Any]) -> str:
        """With the indent of what was there, and its line end at the end."""
        text = self.config["content"] or "{\n  \n}\n"
        lines = text.splitlines()
        indent = next((line[: len(line) - len(line.lstrip())] for line in lines[1:] if line.strip() != "}"), None)
        return json.dumps(data, indent=indent, ensure_ascii=False) + ("\n" if text.endswith("\n") else "")


def _feature(word: str) -> tuple[str, bool]:
    """``name`` or ``name=true``, as dockerd reads it."""
    name, equals, value = word.partition("=")
    return name, not equals or value.lower() in ("1", "t", "true")


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        data.pop(key, None)
    else:
        data[key] = value
