# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of CDI in a containerd: its version, and files that it, or its kubelet, cannot work with."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple

from . import containerd_imports
from .cdi import UnsupportedConfig
from .containerd_config import cri_table, last_version, printed, texts_in
from .toml_edit import lenient, parsed

#: The first version that the kubelet's CDI names reach.
OLDEST = (1, 7, 2)
# Its CRI plugin, by the name that version 1 of the configuration has for it and by that of later ones; and the two that
# containerd 2 has made of it, without which the one that answers the kubelet does not come up.
_SHORT, _FULL = "cri", "io.containerd.grpc.v1.cri"
_PARTS = frozenset({"io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"})


def obstacles(
    program: str, version: str | None, config: Mapping[str, Any], imported: Mapping[str, str], cdi: bool
) -> Iterator[str]:
    """A sentence for each thing that stands in the way.

    config: as module node_preflight returned it. imported: the texts that the root file takes in, by path.
    cdi: whether devices are given by CDI.
    """
    if cdi and version is None:
        yield f"{program} --version does not tell a version, so what it makes of CDI is not known"
    elif cdi and version_tuple(version) < OLDEST:
        yield (
            f"containerd {version} cannot give devices to containers by CDI: below 1.7.2 it drops the CDI "
            f"names that the kubelet passes on, without a word. Upgrade it to 1.7.2 or later (Debian 13 has "
            f"1.7.24, docker.com's containerd.io packages have 1.7 and 2.x), or give devices with injection: "
            f"device_nodes"
        )
    path = config["path"]
    if config["exists"] and config["content"] is None:
        yield f"{path} cannot be read as text: {config['why_no_text']}; fix it first"
        return
    try:
        data = tomllib.loads(config["content"] or "")
    except tomllib.TOMLDecodeError as error:
        # Some parsers of containerd's take what TOML has not.
        but = "this containerd reads it all the same" if config.get("effective") else "it will not start again"
        why = "it begins with a byte order mark" if config["content"].startswith("\ufeff") else error
        yield f"{path} is not valid TOML ({why}): {but}; fix it first"
        return
    files = {path: data, **{name: lenient(text) for name, text in imported.items()}}
    for name, text in files.items():
        for file, what, way_out in containerd_imports.not_there(text, name, config):
            yield (
                f"{name} imports {file}, which is {what}: containerd will not start again; {way_out}, or put the file "
                f"there"
            )
    if not config.get("effective"):
        yield from _invalid_imports(path, config.get("unreadable_imports", ()), imported)
    for name, disabled in _turning_off(files, version):
        yield (
            f"{name} turns CRI off (disabled_plugins has {', '.join(disabled)}), so no kubelet can use this "
            f"containerd: take it out of disabled_plugins and restart containerd"
        )
    if config.get("effective"):
        yield from _no_default_runtime(path, config["effective"], version, imported)


def _turning_off(files: Mapping[str, Mapping[str, Any]], version: str | None) -> Iterator[tuple[str, list[str]]]:
    """The files that turn CRI off, each with its names for it. files: in the order in which they are read.

    Another version's name turns nothing off, or is refused by containerd itself. Source: V1DisabledFilter and
    V2DisabledFilter of 1.6 and 1.7; v1MigratePluginName of 2.x, for each file by its own version.
    """
    merges = version is None or version_tuple(version) >= (2, 0, 0)
    of_all = last_version(files.values())
    for name, data in files.items():
        former = (data.get("version") if merges else of_all) in (None, 0, 1)
        turned_off = {_SHORT} if former else {_FULL}
        if merges:
            turned_off |= {_FULL, *_PARTS}
        disabled = sorted(turned_off & set(texts_in(data, "disabled_plugins")))
        if disabled:
            yield name, disabled


def _no_default_runtime(path: str, effective: str, version: str | None, imported: Mapping[str, str]) -> Iterator[str]:
    """A sentence where CRI has no default runtime: `config dump` takes that, and CRI does not come up with it.

    effective: the output of ``config dump``. Source: ValidatePluginConfig of containerd's pkg/cri/config.
    """
    try:
        settings = cri_table(printed(effective)).get("containerd", {})
    except UnsupportedConfig:
        # Which is said where CDI is looked for in it.
        return
    name, names = settings.get("default_runtime_name"), settings.get("runtimes")
    # 1.x has a former way to give one.
    if name is None or names is None or name in names or settings.get("default_runtime", {}).get("runtime_type"):
        return
    replaced = imported and version is not None and version_tuple(version) < (2, 0, 0)
    where = " to what it imports (before containerd 2 the last CRI table replaces the others whole)" if replaced else ""
    yield (
        f"{path} has CRI's default_runtime_name {name}, and its runtimes are {', '.join(sorted(names)) or 'none'}: CRI "
        f"will not come up again, and no kubelet can use this containerd; add that one{where}, or name another"
    )


def _invalid_imports(path: str, unreadable: list[str], imported: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each import that is why containerd does not take the whole."""
    for name in unreadable:
        yield f"{name}, which {path} imports, is not UTF-8: containerd will not start again; fix it first"
    for name, text in imported.items():
        try:
            parsed(text)
        except UnsupportedConfig as error:
            yield f"{name}, which {path} imports: {error}, as containerd will not start again"
