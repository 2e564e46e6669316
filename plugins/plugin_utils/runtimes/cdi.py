# SPDX-License-Identifier: Apache-2.0
"""Types that every adapter uses: a CDI configuration, a change, and an error."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import directory_names

#: Directories of the role's specs and of the plugin's; every runtime reads them by default.
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")


class UnsupportedConfig(Exception):
    """A configuration that we do not edit; the message says why and what to do by hand."""


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
    def wanted_dirs(self) -> list[str]:
        """The configuration's spec directories with ours added."""
        return directory_names.with_ours(self.spec_dirs, *SPEC_DIRS)


class Change(NamedTuple):
    """A file to write: its text before and after; None for no file."""

    path: str
    before: str | None
    after: str | None


class Checked(NamedTuple):
    """The result of the node's runtime for a new text.

    effective: output of its `config dump`. staged: path of the text's copy.
    """

    effective: str
    staged: str


class Check(Protocol):
    """Lets the node's runtime read a new text. Raises UnsupportedConfig if the runtime refuses it.

    beside: whether imports are relative to the file's directory.
    drop_in: text of a file imported under the name STAGED_DROP_IN, or None.
    as_drop_in: if the text itself is a drop-in, its path in a directory that the runtime reads
    completely, with the adapter's ``staged_command``; None for a root file.
    """

    def __call__(
        self, text: str, beside: bool, drop_in: str | None = None, as_drop_in: str | None = None
    ) -> Checked: ...


#: Placeholder for the path of a drop-in's copy, which only the node knows.
STAGED_DROP_IN = "/{drop_in}"
