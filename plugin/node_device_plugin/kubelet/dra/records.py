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
import fcntl
import glob
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ...cdi import writer
from ...support import bounded_reads
from ...support.file_identity import Identity, identity
from ...support.new_file import replace
from ...support.sockets import PRIVATE_MODE
from . import RECORDS, record_path, record_paths
from .claims import CDI_KIND, ClaimId, PreparedClaim, PreparedDevice, Refused, require_free

#: The format of a record. A plugin that does not know the format leaves the claim and its devices alone.
_VERSION = 1


class RecordError(Exception):
    """A record cannot be read; the message names the file, the reason and the fix."""


class Records:
    """Reads, writes and removes the records of claims. directory: of the plugin's CDI specs, for each method."""

    def __init__(self) -> None:
        #: What was read, by path, with the identity of the file.
        self._read: dict[str, tuple[Identity, PreparedClaim]] = {}

    def read(self, directory: str) -> dict[str, PreparedClaim]:
        """All prepared claims, by uid. Raises RecordError and OSError."""
        read, self._read = self._read, {}
        claims = {}
        for path in record_paths(directory):
            found, known = identity(path, with_status=True), read.get(path)
            # Another thread or instance may release the claim meanwhile.
            with contextlib.suppress(FileNotFoundError):
                claim = known[1] if known is not None and known[0] == found else _load(path)
                if found is not None:
                    self._read[path] = found, claim
                claims[claim.id.uid] = claim
        return claims

    def begin(self, directory: str, uid: str) -> None:
        """Note that a claim's commands begin to run. A release ends that, also by another instance. Raises OSError.

        The kubelet repeats the preparation or releases the claim if the plugin is killed, which takes the note away.
        """
        with _locked(os.path.join(directory, RECORDS)):
            os.close(os.open(_begun(directory, uid), os.O_CREAT | os.O_WRONLY, 0o600))

    def write(self, directory: str, claim: PreparedClaim, has_begun: bool = False) -> None:
        """Write a claim's spec, then its record, so that what a record names exists. has_begun: see ``begin``.

        Raises Held if another claim has one of the devices, Refused if the claim was released since it began, OSError
        and RecordError.
        """
        with _locked(os.path.join(directory, RECORDS)):
            if has_begun and not os.path.lexists(_begun(directory, claim.id.uid)):
                raise Refused(
                    f"{claim.id}: was released while it was prepared, the kubelet tries again if it is needed"
                )
            # Another instance may have prepared the other claim since this one was planned.
            require_free(claim, self.read(directory).values())
            devices = claim.spec_devices()
            if devices:
                writer.write_claim(directory, claim.id.uid, CDI_KIND, devices)
            path = record_path(directory, claim.id.uid)
            staged = os.path.join(os.path.dirname(path), f".{claim.id.uid}.{os.urandom(6).hex()}")
            replace(path, json.dumps(_to_data(claim)).encode("utf-8"), staged)
            if has_begun:
                _unlink(_begun(directory, claim.id.uid))

    def remove(self, directory: str, uid: str) -> None:
        """Remove a claim's spec, then its record, and the directory after the last one. Raises OSError.

        A claim without a record may have a spec, if the plugin was killed while it prepared the claim.
        """
        parent = os.path.join(directory, RECORDS)
        if not os.path.lexists(parent):
            # Do not create the directory, for which a full disk has no room.
            writer.remove_claim(directory, uid)
            return
        with _locked(parent):
            writer.remove_claim(directory, uid)
            _unlink(_begun(directory, uid))
            _unlink(record_path(directory, uid))
            if not record_paths(directory):
                _remove_directory(parent)


def _begun(directory: str, uid: str) -> str:
    return os.path.join(directory, RECORDS, f"{uid}.begun")


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


@contextlib.contextmanager
def _locked(parent: str) -> Iterator[None]:
    """Let nobody else change a record meanwhile, also no other instance: the last release removes the directory.

    parent: the directory of the records, created if missing. Only root can open it, so no other user can lock it.
    """
    descriptor = _taken(parent)
    try:
        yield
    finally:
        os.close(descriptor)


def _taken(parent: str) -> int:
    """Open and lock the directory. Raises OSError."""
    while True:
        try:
            descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            _make(parent)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_current = os.path.samestat(os.stat(parent), os.fstat(descriptor))
        except FileNotFoundError:
            is_current = False
        except BaseException:
            os.close(descriptor)
            raise
        if is_current:
            return descriptor
        # The former holder of the lock has removed the directory.
        os.close(descriptor)


def _make(parent: str) -> None:
    try:
        os.mkdir(parent, PRIVATE_MODE)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(os.path.dirname(parent), mode=0o755, exist_ok=True)


def _remove_directory(parent: str) -> None:
    # Nobody writes a record now, so a plugin that was killed has left these files.
    for path in glob.glob(os.path.join(glob.escape(parent), ".*")):
        os.unlink(path)
    try:
        os.rmdir(parent)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise


def _load(path: str) -> PreparedClaim:
    """Read a record. Raises FileNotFoundError and RecordError."""
    try:
        data = bounded_reads.json_of(bounded_reads.read_file(path, follow=False))
        if data["version"] != _VERSION:
            raise ValueError("has version {}, and this plugin knows version {}".format(data["version"], _VERSION))
        return _of_data(data)
    except FileNotFoundError:
        raise
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        why = f"has no {error}" if isinstance(error, KeyError) else error
        raise RecordError(
            f"cannot read which devices a claim has: {path}: {why}: end the pods with claims on this node, then remove "
            "this file"
        ) from error


def _to_data(claim: PreparedClaim) -> dict[str, Any]:
    devices = [device._asdict() for device in claim.devices]
    head = {"version": _VERSION, "driver": claim.driver, "claim": claim.id._asdict()}
    return {**head, "devices": devices, "env": dict(claim.env)}


def _of_data(data: Mapping[str, Any]) -> PreparedClaim:
    devices = (PreparedDevice(**each) for each in data["devices"])
    return PreparedClaim(
        ClaimId(**data["claim"]),
        data["driver"],
        tuple(each._replace(cdi_names=tuple(each.cdi_names), paths=tuple(each.paths)) for each in devices),
        {request: dict(variables) for request, variables in data["env"].items()},
    )
