"""Finds obstacles to CDI in containerd's version and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...declaration.cdi import version_tuple
from ...support.toml import TomlError, document
from .adapter import Adapter
from .cdi import UnsupportedConfig
from .containerd_config import cri_table, last_version, printed, table_at, texts_in
from .containerd_imports import Imports
from .toml_edit import lenient, parsed

#: The first containerd that adds the kubelet's CDI devices to containers.
OLDEST = (1, 7, 2)
# The CRI plugin's name in version 1 of the configuration, and in later versions. In containerd 2, the CRI service does
# not start without the plugins in _PARTS.
_SHORT, _FULL = "cri", "io.containerd.grpc.v1.cri"
_PARTS = frozenset({"io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"})


def obstacles(adapter: Adapter, imports: Imports, cdi: bool) -> Iterator[str]:
    """Yield one message for each obstacle. cdi: whether devices are injected by CDI."""
    program, version, config = adapter.program, adapter.version, adapter.config
    if cdi and version is None:
        yield (
            f"{program} --version prints no version, so its CDI support is unknown: reinstall containerd, or set "
            "injection: device_nodes for the resources"
        )
    elif cdi and version_tuple(version) < OLDEST:
        yield (
            f"containerd {version} silently drops the kubelet's CDI device names, so containers would start without "
            "their devices: upgrade it to 1.7.2 or later (Debian 13 has 1.7.24, docker.com's containerd.io packages "
            "have 1.7 and 2.x), or set injection: device_nodes for the resources"
        )
    path = config["path"]
    if config["exists"] and config["content"] is None:
        yield f"{path} cannot be read as text, because {config['why_no_text']}: fix the file first"
        return
    if config.get("is_given") and not config["exists"]:
        yield f"{path} does not exist, so containerd cannot start again: create it, or remove --config"
        return
    try:
        data = document(config["content"] or "")
    except TomlError as error:
        # Some containerd versions accept invalid TOML.
        but = "although this containerd accepts it" if config.get("effective") else "so containerd cannot start again"
        why = "it begins with a byte order mark" if config["content"].startswith("\ufeff") else error
        yield f"{path} is not valid TOML ({why}), {but}: fix the file first"
        return
    files = {path: data, **{name: lenient(text) for name, text in imports.texts.items()}}
    for name, file, what, way_out in imports.missing:
        yield f"{name} imports {file}, which is {what}, so containerd cannot start again: {way_out}"
    if not config.get("effective"):
        yield from _invalid_imports(path, imports)
    for name, disabled in _turning_off(files, version):
        yield (
            f"{name} disables CRI (disabled_plugins has {', '.join(disabled)}), so the kubelet cannot use this "
            "containerd: remove it from disabled_plugins and restart containerd"
        )
    if config.get("effective"):
        yield from _no_default_runtime(files, config["effective"], version)


def _turning_off(files: Mapping[str, Mapping[str, Any]], version: str | None) -> Iterator[tuple[str, list[str]]]:
    """Yield the files that disable CRI, each with the disabled names. files: in containerd's order.

    With CRI's short name, containerd does not start if the configuration has version 2 or later. With the full name in
    version 1, 1.x disables nothing. In 2.x, the version of each file counts.
    Source: V1DisabledFilter and V2DisabledFilter of 1.6 and 1.7; v1MigratePluginName of 2.x.
    """
    merges = version is None or version_tuple(version) >= (2, 0, 0)
    of_all = last_version(files.values())
    for name, data in files.items():
        former = (data.get("version") if merges else of_all) in (None, 0, 1)
        turned_off = {_SHORT} if former else {_SHORT, _FULL}
        if merges:
            turned_off |= {_FULL, *_PARTS}
        disabled = sorted(turned_off & set(texts_in(data, "disabled_plugins")))
        if disabled:
            yield name, disabled


def _no_default_runtime(files: Mapping[str, Mapping[str, Any]], effective: str, version: str | None) -> Iterator[str]:
    """Yield a message if CRI has no default runtime. Then the CRI plugin does not start, but `config dump` succeeds.

    files: as data by path, in containerd's order. effective: the output of ``config dump``.
    Source: ValidatePluginConfig of containerd's pkg/cri/config.
    """
    try:
        settings = cri_table(printed(effective)).get("containerd", {})
    except UnsupportedConfig:
        # `cdi` reports this error.
        return
    key = "default_runtime_name"
    name, names = settings.get(key), settings.get("runtimes")
    # 1.x also accepts an older key for the default runtime.
    if name is None or names is None or name in names or settings.get("default_runtime", {}).get("runtime_type"):
        return
    setters = [file for file, data in files.items() if table_at(cri_table(data), "containerd").get(key) == name]
    if setters:
        fact = f"{setters[-1]} sets CRI's {key} to {name}"
    else:
        fact = f"{next(iter(files))}: CRI's {key} is {name}, containerd's default"
    replaced = len(files) > 1 and version is not None and version_tuple(version) < (2, 0, 0)
    where = " to the last import with a CRI table, the only such table that containerd 1.7 reads" if replaced else ""
    yield (
        f"{fact}, but its runtimes are {', '.join(sorted(names)) or 'none'}, so CRI cannot start again: add the "
        f"runtime {name}{where}, or set {key} to one of its runtimes"
    )


def _invalid_imports(path: str, imports: Imports) -> Iterator[str]:
    """Yield one message for each import because of which containerd rejects the configuration."""
    for name in imports.unreadable:
        yield f"{name}, which {path} imports, is not UTF-8, so containerd cannot start again: fix the file first"
    for name, text in imports.texts.items():
        try:
            parsed(text)
        except UnsupportedConfig as error:
            yield f"{name}, which {path} imports: {error}, because containerd cannot start again"
