"""Defines the types that all adapters use."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ...support import directory_names

SPEC_DIRS = directory_names.CDI_DIRS


# Credentials in a URL, which may be a part of a key that a message names.
_CREDENTIALS = re.compile(r"://[^/\s\"']*@")


def without_credentials(message: str) -> str:
    """Return a message without secrets. Its values are directories, and those that prevent CDI."""
    return _CREDENTIALS.sub("://(hidden)@", message)


class UnsupportedConfig(Exception):
    """A configuration that we do not edit. The message has the reason and the manual steps."""

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))


class Cdi(NamedTuple):
    """The CDI settings in a configuration."""

    enabled: bool
    spec_dirs: tuple[str, ...]

    @property
    def suffices(self) -> bool:
        return self.enabled and not self.missing_dirs

    @property
    def missing_dirs(self) -> list[str]:
        return directory_names.missing(SPEC_DIRS, self.spec_dirs)

    @property
    def shortfall(self) -> str:
        """Why CDI is not effective with these settings."""
        if not self.enabled:
            return "CDI is off in the runtime's configuration"
        return f"the runtime's configuration does not list {', '.join(self.missing_dirs)} in cdi_spec_dirs"

    @property
    def wanted_dirs(self) -> list[str]:
        """The configuration's spec directories and ours."""
        return directory_names.with_ours(self.spec_dirs, *SPEC_DIRS)


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the key paths in which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            difference
            for key in sorted({*before, *after})
            for difference in differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if before == after else [path]


class Change(NamedTuple):
    """A file to write. before, after: its text; None for no file."""

    path: str
    before: str | None
    after: str | None


#: Placeholder for the path of a drop-in's copy.
STAGED_DROP_IN = "/{drop_in}"
