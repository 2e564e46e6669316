# SPDX-License-Identifier: Apache-2.0
"""What every adapter speaks of: CDI as a runtime has it, a change, and a refusal."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import directory_names

#: Where our specs are, and the plugin's own: the default of every runtime.
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")


class UnsupportedConfig(Exception):
    """A configuration that is not edited: why, and what to do by hand."""


class Cdi(NamedTuple):
    """What a configuration makes of CDI."""

    enabled: bool
    spec_dirs: tuple[str, ...]

    @property
    def suffices(self) -> bool:
        return self.enabled and not self.missing_dirs

    @property
    def missing_dirs(self) -> list[str]:
        return directory_names.lacking(SPEC_DIRS, self.spec_dirs)

    @property
    def wanted_dirs(self) -> list[str]:
        """Its folders with ours."""
        return directory_names.with_ours(self.spec_dirs, *SPEC_DIRS)


class Change(NamedTuple):
    """One file that is written: its text now and then; None where there is no file."""

    path: str
    before: str | None
    after: str | None


class Checked(NamedTuple):
    """What the node's own runtime makes of a text.

    effective: its `config dump`. staged: the name it had for that.
    """

    effective: str
    staged: str


class Check(Protocol):
    """Asks the node's runtime what it makes of a text. Raises UnsupportedConfig where it refuses it.

    beside: whether imports are relative to the file's own folder. drop_in: text of a file imported under the name
    STAGED_DROP_IN; None for none. as_drop_in: path of a drop-in that the text itself is to be, in a folder that the
    runtime reads whole, with the adapter's ``staged_command``; None for a root file.
    """

    def __call__(
        self, text: str, beside: bool, drop_in: str | None = None, as_drop_in: str | None = None
    ) -> Checked: ...


#: Stands for the path of a drop-in's copy, which only the node knows.
STAGED_DROP_IN = "/{drop_in}"
