"""The record of prepared claims: a file for each claim, and a CDI spec if the claim has variables.

The records are in a directory below the plugin's CDI specs. A record so lives exactly as long as the specs that the
claim's names need: a reboot, or the restart of a container that acts as a node, empties both. The service and the
DaemonSet can write there, and see each other's records. Runtimes read no directory below a directory of specs
(scanSpecDirs of the CDI library). Everything in this module reads and writes files, so it must not run in the event
loop.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from typing import Any

from ...cdi import writer
from ...support import bounded_reads
from ...support.file_identity import Identity, identity
from ...support.new_file import replacing
from ...support.sockets import PRIVATE_MODE
from . import RECORDS
from .claims import CDI_KIND, ClaimId, PreparedClaim, PreparedDevice

#: The format of a record. A plugin that does not know the format leaves the claim and its devices alone.
_VERSION = 1
_ENDING = ".json"


class RecordError(Exception):
    """A record cannot be read; the message names the file and the reason."""


class Records:
    """Reads, writes and removes the records of claims. directory: of the plugin's CDI specs, for each method."""

    def __init__(self) -> None:
        #: What was read, by path, with the identity of the file.
        self._read: dict[str, tuple[Identity, PreparedClaim]] = {}

    def read(self, directory: str) -> dict[str, PreparedClaim]:
        """All prepared claims, by uid. Raises RecordError."""
        parent = os.path.join(directory, RECORDS)
        read, self._read = self._read, {}
        claims = {}
        for name in _names(parent):
            path = os.path.join(parent, name)
            found, known = identity(path, with_status=True), read.get(path)
            if found is None:
                # Another instance has released the claim meanwhile.
                continue
            claim = known[1] if known is not None and known[0] == found else _load(path)
            self._read[path] = found, claim
            claims[claim.id.uid] = claim
        return claims

    def write(self, directory: str, claim: PreparedClaim) -> None:
        """Write a claim's spec, then its record, so that what a record names exists. Raises OSError."""
        devices = claim.spec_devices()
        if devices:
            writer.write_claim(directory, claim.id.uid, CDI_KIND, devices)
        path = _path(directory, claim.id.uid)
        os.makedirs(os.path.dirname(path), mode=PRIVATE_MODE, exist_ok=True)
        staged = os.path.join(os.path.dirname(path), f".{claim.id.uid}.{os.urandom(6).hex()}")
        with replacing(path, staged) as file:
            file.write(json.dumps(_to_data(claim)).encode("utf-8"))

    def remove(self, directory: str, uid: str) -> None:
        """Remove a claim's spec, then its record, and the directory after the last one. Raises OSError.

        A claim without a record may have a spec, if the plugin was killed while it prepared the claim.
        """
        writer.remove_claim(directory, uid)
        path = _path(directory, uid)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        parent = os.path.dirname(path)
        if not _names(parent):
            # Only a plugin that was killed leaves a file that it was writing.
            for name in _names(parent, hidden=True):
                os.unlink(os.path.join(parent, name))
            try:
                os.rmdir(parent)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise


def _path(directory: str, uid: str) -> str:
    return os.path.join(directory, RECORDS, uid + _ENDING)


def _names(parent: str, hidden: bool = False) -> list[str]:
    try:
        names = os.listdir(parent)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.startswith(".") is hidden)


def _load(path: str) -> PreparedClaim:
    try:
        data = bounded_reads.json_of(bounded_reads.read_file(path, follow=False))
        if data["version"] != _VERSION:
            raise ValueError("has version {}, and this plugin knows version {}".format(data["version"], _VERSION))
        return _of_data(data)
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        why = f"has no {error}" if isinstance(error, KeyError) else error
        raise RecordError(f"cannot read which devices a claim has: {path}: {why}") from error


def _to_data(claim: PreparedClaim) -> dict[str, Any]:
    devices = [device._asdict() for device in claim.devices]
    return {"version": _VERSION, "claim": claim.id._asdict(), "devices": devices, "env": dict(claim.env)}


def _of_data(data: Mapping[str, Any]) -> PreparedClaim:
    devices = (PreparedDevice(**each) for each in data["devices"])
    return PreparedClaim(
        ClaimId(**data["claim"]),
        tuple(each._replace(cdi_names=tuple(each.cdi_names), paths=tuple(each.paths)) for each in devices),
        {request: dict(variables) for request, variables in data["env"].items()},
    )
