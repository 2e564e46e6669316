"""Which version of the plugin this is."""

from __future__ import annotations


def version() -> str:
    """The version of the installed distribution; ``unknown`` where the package runs from a tree."""
    # Imported here: it takes a tenth of a start, and nobody asks so early.
    from importlib import metadata

    try:
        return metadata.version("node-device-plugin")
    except metadata.PackageNotFoundError:
        return "unknown"
