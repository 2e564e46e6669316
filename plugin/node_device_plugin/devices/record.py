"""Keeps the record of what ids mean in a file, within one boot of the node.

The file is in the plugin's directory below the kubelet's, which the service and the DaemonSet have in common.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from ..cdi import resolution, writer
from ..declaration import Configuration, Resource
from ..support import bounded_reads
from ..support.bounded_calls import BoundedCalls
from ..support.new_file import replace
from ..support.sockets import PRIVATE_MODE, SOCKET_DIRECTORY
from ..telemetry.logs import Log, Tries
from .given import Given, Offer, OfferKey
from .identity import Identities, Identity

log = Log(__name__)

FILE_NAME = "given.json"
#: A random id of the running kernel's boot (Documentation/admin-guide/sysctl/kernel.rst, random).
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Recorded(NamedTuple):
    """The record of this boot. offers: what each id means. missed: see Given."""

    offers: dict[OfferKey, Offer]
    missed: dict[OfferKey, bool]


class RecordFile:
    """Keeps the record of ``given`` in a file, of which another configuration may change the path.

    calls: run each read and write.
    """

    def __init__(self, given: Given, calls: BoundedCalls) -> None:
        self._given, self._calls = given, calls
        #: The file that was loaded, and what was last written to it.
        self._path = ""
        self._saved: tuple[Recorded, bool] | None = None
        self._saving = Tries(log)

    async def load(self, configuration: Configuration, identities: Identities, again: bool) -> None:
        """Load the file of this boot. Without one at the start, our specs tell what ids meant before.

        again: whether another instance has kept the record since.
        """
        path, specs = _path_in(configuration), configuration.dynamic_cdi_dir
        if path == self._path and not again:
            return
        former, self._path, self._saved = self._path, path, None
        recorded: Recorded | None = None
        with _told("cannot read what containers were given: make the file readable, then restart the plugin", path):
            recorded = await self._calls.ask(load, path, specs)
            if former not in ("", path):
                with contextlib.suppress(FileNotFoundError):
                    await self._calls.ask(os.unlink, former)
        if recorded is not None:
            # Another instance does not know what this instance alone has offered.
            self._given.record = {**(self._given.record if again else {}), **recorded.offers}
            self._given.missed, self._given.is_known = recorded.missed, True
        elif not former:
            self._given.is_known = False
            message = "cannot read what containers were given: make the directory readable, then restart the plugin"
            with _told(message, specs):
                self._given.record = await self._calls.ask(_by_our_specs, specs, configuration.resources, identities)

    async def save(self, configuration: Configuration) -> None:
        """Write the file if the record has changed."""
        path = _path_in(configuration)
        try:
            has_specs = await self._calls.ask(writer.exists, configuration.dynamic_cdi_dir)
            now = Recorded(dict(self._given.record), dict(self._given.missed)), has_specs
            if now != self._saved:
                await self._calls.ask(save, path, *now)
                self._saved = now
            self._saving.went_well()
        except OSError as error:
            message = "cannot record what containers are given: make the directory writable, and free space on its disk"
            self._saving.failed(logging.WARNING, message, path=path, error=error)


def _path_in(configuration: Configuration) -> str:
    return os.path.join(configuration.kubelet_device_plugin_dir, SOCKET_DIRECTORY, FILE_NAME)


@contextlib.contextmanager
def _told(message: str, path: str) -> Iterator[None]:
    """Log an OSError of this block, and go on."""
    try:
        yield
    except OSError as error:
        log.warning(message, path=path, error=error)


def _by_our_specs(specs: str, resources: Sequence[Resource], identities: Identities) -> dict[OfferKey, Offer]:
    """What the names in our specs mean."""
    of_kinds = {resource.cdi_kind: resource for resource in resources}
    offers = {}
    for name, given in writer.given(specs):
        kind, _equals, device_id = name.partition("=")
        paths = sorted(resolution.paths("device node", given))
        nodes = tuple(identities.read(paths).values())
        if nodes or not paths:
            resource = of_kinds.get(kind)
            is_share = resource is not None and resource.replicas > 1
            key = resource.name if resource else kind, device_id
            offers[key] = Offer("", nodes, tuple(sorted(resolution.paths("mount", given))), name, is_share)
    return offers


def load(path: str, specs: str | None) -> Recorded | None:
    """The record of this boot; empty after a reboot, None if no plugin has kept a record on this node.

    specs: our dynamic CDI directory; None if its specs may have been removed since.

    A container that acts as a node (kind) keeps its kernel's boot id when it restarts, but loses its /run and with it
    the specs. Raises OSError if the file or the directory cannot be read. A file in another format counts as a reboot.
    """
    try:
        data = bounded_reads.json_of(bounded_reads.read_file(path, follow=False))
        if data["boot_id"] != _boot_id() or (data["has_specs"] and specs is not None and not writer.exists(specs)):
            return Recorded({}, {})
        offers = {
            (resource, device): _offer(*entry)
            for resource, devices in data["offers"].items()
            for device, entry in devices.items()
        }
        missed = {(str(resource), str(device)): bool(accepted) for resource, device, accepted in data["missed"]}
        return Recorded(offers, missed)
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, TypeError, ValueError):
        return Recorded({}, {})


def save(path: str, recorded: Recorded, has_specs: bool) -> None:
    """Replace the file in one step; without anything to record, remove it. Raises OSError."""
    if not (recorded.offers or recorded.missed):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    by_resource: dict[str, dict[str, object]] = {}
    for (resource, device), offer in recorded.offers.items():
        by_resource.setdefault(resource, {})[device] = offer
    missed = [(*key, accepted) for key, accepted in recorded.missed.items()]
    data = {"boot_id": _boot_id(), "has_specs": has_specs, "offers": by_resource, "missed": missed}
    os.makedirs(os.path.dirname(path), mode=PRIVATE_MODE, exist_ok=True)
    staged = os.path.join(os.path.dirname(path), f".{FILE_NAME}.new")
    # Only the instance that leads on this node writes, so a staged file is a killed instance's, or no file at all.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(staged)
    replace(path, json.dumps(data, separators=(",", ":")).encode("utf-8"), staged)


def remove(directory: str, held: Collection[str]) -> None:
    """Remove the record of a stopped plugin, and its directory if that is empty, unless a pod holds a recorded device.

    held: the ids that pods hold. Raises OSError.
    """
    path = os.path.join(directory, FILE_NAME)
    recorded = load(path, None)
    if recorded is not None and any(device_id in held for _resource, device_id in recorded.offers):
        return
    # A plugin that was killed may have left a file that it was writing.
    staged = [os.path.join(directory, name) for name in os.listdir(directory) if name.startswith(f".{FILE_NAME}.")]
    for remove_it, what in (*((os.unlink, each) for each in (path, *staged)), (os.rmdir, directory)):
        try:
            remove_it(what)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def _boot_id() -> str:
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def _offer(whole: Any, nodes: Any, mounts: Any, cdi_name: Any, is_share: Any, is_found: Any) -> Offer:
    """The entry of a device, as ``save`` writes it. Raises TypeError."""
    texts = [whole, cdi_name, *mounts, *(text for node in nodes for text in node)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a record has texts")
    identities = tuple(Identity(*node) for node in nodes)
    return Offer(whole, identities, tuple(mounts), cdi_name, bool(is_share), bool(is_found))
