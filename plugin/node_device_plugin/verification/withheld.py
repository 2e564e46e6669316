"""The devices that the plugin withholds now, judged as the plugin judges them, but without the plugin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..cdi.resolution import Resolution
from ..declaration import Configuration, Resource
from ..devices import record
from ..devices.given import Given, Now
from ..devices.holdings import Holding
from ..devices.identity import Identities, ambiguous_serials
from ..support.sockets import SOCKET_DIRECTORY


def withheld(
    configuration: Configuration, resources: Sequence[Resource], holdings: Sequence[Holding], specs: Resolution
) -> Mapping[str, Mapping[str, str]]:
    """By resource, the devices that no container can get until their holders end, with the reason of each.

    Reads files, so it must not run in the event loop. Raises OSError if the plugin's record cannot be read.
    """
    path = os.path.join(configuration.kubelet_device_plugin_dir, SOCKET_DIRECTORY, record.FILE_NAME)
    given = Given()
    recorded = record.load(path, configuration.dynamic_cdi_dir)
    given.record = recorded.offers if recorded else {}
    paths = frozenset().union(*given.paths(resources, specs).values(), *(each.given for each in holdings))
    at = Identities().read(paths)
    now = Now(at, ambiguous_serials(at.values()), given.record)
    known = {(resource.name, device.id) for resource in resources for device in resource.devices}
    # What this judgement finds open, the holders' answer clears up.
    given.judge(resources, known, now, specs)
    given.answer(given.ask(), holdings)
    return given.judge(resources, known, now, specs).reasons
