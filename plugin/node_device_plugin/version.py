"""Which version of the plugin this is."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version of the installed distribution; ``unknown`` where the package runs from a tree."""
    try:
        return metadata.version("node-device-plugin")
    except metadata.PackageNotFoundError:
        return "unknown"
