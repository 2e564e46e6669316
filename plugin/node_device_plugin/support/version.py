"""The version of the plugin."""

from __future__ import annotations


def version() -> str:
    """The version of the installed distribution, or ``unknown`` in a source tree."""
    # Import only here, because the import takes a tenth of the start-up time, and start-up needs no version.
    from importlib import metadata

    try:
        return metadata.version("node-device-plugin")
    except metadata.PackageNotFoundError:
        return "unknown"
