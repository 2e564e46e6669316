# SPDX-License-Identifier: Apache-2.0
"""Writes the CDI specs of role cdi_specs, and judges other owners' specs.

Runs on nodes: Python 3.9. The caller has loaded the plugin's code (module_utils/node_code.py).
"""

from __future__ import annotations

import contextlib
import time

from .. import node_code, plugin_command
from ..account_numbers import with_numbers

PARAMS = {
    "state": {"type": "str", "choices": ["present", "pruned", "absent"], "default": "present"},
    "configuration": {"type": "dict", "default": {"resources": []}},
    "templates": {"type": "dict", "default": {}},
    **plugin_command.PARAMS,
    "facts": {"type": "dict"},
    "code": node_code.ARGUMENT,
}
_OWNER = "cdi_specs"
# Seconds that the kubelet may take to notice that the plugin no longer offers a device.
_TIMEOUT = 5.0
_PAUSE = 0.5


def converge(node, params):
    """Converge the role's specs, and judge all specs of the node.

    Beside a report's keys, the answer has ``files`` (the role's files after the run),
    ``devices`` (undeclared ones that stay, each with the reason), ``in_use`` (why devices in use stop the run), and
    ``crashing`` and ``broken`` (other owners' files that crash a runtime with CDI, and that runtimes do not load).
    """
    from node_device_plugin.cdi import role_specs
    from node_device_plugin.declaration import cdi

    def files_of(specs):
        return {f"{role_specs.DIRECTORY}/{name}": cdi.serialise(spec).encode() for name, spec in specs.items()}

    configuration, unknown = with_numbers(params["configuration"], node.facts)
    runtime = role_specs.Runtime(*map(node.facts["runtime"].get, ("name", "version")))
    state = params["state"]
    with node.ledger() as ledger:
        # The facts keep the specs, so that the preflight reads them once for the states present and pruned.
        if "specs" not in node.facts:
            node.facts["specs"] = role_specs.find(node.facts["cdi_directories"], ledger.of(_OWNER), runtime.accepted)
        specs = role_specs.Specs(configuration.resources, params["templates"], node.facts["specs"], runtime)
        staying, in_use = _staying(node, specs, params)
        wanted = specs.to_write(staying)
        files = files_of(wanted)
        problems = [*map(str, unknown), *(specs.missing() if runtime.version else ()), *specs.refused(wanted)]
        # In check mode, the specs of state present, which a real run would have written before.
        pending = files_of(specs.to_write(specs.leftovers)) if state == "pruned" else None
        managed = node.managed(ledger, _OWNER, pending)
        # Until the role's task, pods may end, and the play may install another command.
        node.has_unshown_work |= bool(in_use or (state != "present" and specs.leftovers))
        # Without a leftover, the task before has done the work. In check mode, it only showed the work.
        is_done = state == "pruned" and not specs.leftovers
        if not (is_done or problems or in_use):
            managed.converge([{"path": path, "kind": "file", "mode": 0o644, "content": files[path]} for path in files])
    return node.answer(
        managed.report,
        problems=problems,
        in_use=in_use,
        files=list(files),
        devices=[{"device": held.name, "reason": held.reason} for held in staying if held.reason],
        crashing=specs.crashing(),
        broken=specs.broken(),
    )


def _staying(node, specs, params):
    """Return the leftovers that stay, and why devices in use stop the run.

    In state present, these are held devices whose names would refer to other devices.
    """
    try:
        if params["state"] != "present":
            return (_held(node, specs, params) if specs.leftovers else []), []
        with contextlib.suppress(plugin_command.CommandMissing):
            if specs.redefined():
                return specs.leftovers, specs.held_otherwise(_holders(node, params))
        return specs.leftovers, []
    except plugin_command.CommandError as error:
        return specs.leftovers, [str(error)]


def _held(node, specs, params):
    """Return the leftovers that stay. Wait briefly until the kubelet notices that the plugin withdrew devices."""
    # In check mode, the plugin still offers the devices that a real run would withdraw.
    advertised_counts = not node.check_mode
    deadline = time.monotonic() + _TIMEOUT
    while True:
        staying = specs.must_stay(_holders(node, params), advertised_counts)
        if all(held.reason.startswith("held") for held in staying) or time.monotonic() > deadline:
            return staying
        time.sleep(_PAUSE)


def _holders(node, params):
    """Return the pods that hold devices, with the devices' ids. Raises plugin_command.CommandError."""
    from node_device_plugin.declaration.device_plugin_api import with_device_ids

    return with_device_ids(plugin_command.holders(node, params))
