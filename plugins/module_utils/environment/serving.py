# SPDX-License-Identifier: Apache-2.0
"""Reads the resources and devices that the running plugin serves, and compares two readings.

The source is an environment's command ``status``. The command reports the plugin's own state and the kubelet's
PodResources.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

from .build import COMMAND

# Seconds that the status command may take.
_TIMEOUT = 30
# Beginning of the reason if the plugin withholds a device that is there. Source: the plugin's devices/given.py.
_WITHHELD = ("held by ", "the kubelet has not said yet", "two ids lead to one device")


class Serving(NamedTuple):
    """A reading of the served resources.

    resources: maps each name to {"registered": whether the kubelet keeps a stream open, or has the DRA driver
        registered; "by_claim": whether the DRA driver serves it; "devices": (state, reason) by id}. None if no plugin
        answers; ``problem`` then says why.
    listed: maps each resource to its allocatable ids; None if no kubelet answers.
    not_ready: a sentence for each reason why the plugin is not ready.
    """

    resources: Mapping[str, Any] | None
    listed: Mapping[str, Any] | None
    not_ready: tuple = ()
    problem: str = ""


def ask(environment, config):
    """Return the current reading. Raises nothing. environment: its directory. config: the configuration file."""
    command = [os.path.join(environment, "bin", COMMAND), "status", "--config", config, "--output", "json"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False)
        return _read(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError) as error:
        return Serving(None, None, problem=str(error))
    except (ValueError, KeyError, TypeError):
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        said = said or ["exit code %d without output" % done.returncode]
        return Serving(None, None, problem=f"{command[0]} status: {said[-1]}")


def _read(data):
    plugin = data["plugin"]
    listed = data["allocatable"] if data["source"] == "kubelet" else None
    if plugin is None:
        return Serving(None, listed, problem=data["problem"])
    resources = {
        resource["name"]: {
            "registered": resource["registered"],
            # An earlier release's plugin does not tell the API.
            "by_claim": resource.get("api") == "dra",
            "devices": {device["id"]: (device["state"], device["reason"]) for device in resource["devices"]},
        }
        for resource in plugin["resources"]
    }
    return Serving(resources, listed, tuple(plugin["not_ready"]))


def _withheld(resource):
    """Return the devices that the plugin withholds. Older releases offered such devices."""
    return {device for device, (_state, reason) in resource["devices"].items() if (reason or "").startswith(_WITHHELD)}


def missing(before, now):
    """Return a sentence for each resource or device that is no longer served; empty if nothing is missing.

    Ignores resources that were not registered before, and devices that were not healthy before. If no plugin answered
    before, the plugin must now be ready, unless no kubelet answers.
    """
    if now.resources is None:
        return [now.problem]
    if before.resources is None:
        return list(now.not_ready) if now.listed is not None else []
    sentences = []
    for name, resource in sorted(before.resources.items()):
        there = now.resources.get(name)
        if there is None:
            sentences.append(f"{name} is not served")
            continue
        if resource["registered"] and not there["registered"]:
            lacks = "has not registered the DRA driver" if there["by_claim"] else "has no ListAndWatch stream open"
            sentences.append(f"{name}: the kubelet {lacks}")
        elif before.listed is not None and now.listed is not None:
            gone = set(before.listed.get(name, ())) - set(now.listed.get(name, ()))
            # A share's id consists of the device's id, `::` and a number.
            gone = {each for each in gone if each.partition("::")[0] not in _withheld(there)}
            if gone:
                sentences.append("{}: the kubelet does not list {}".format(name, ", ".join(sorted(gone))))
        for device, (state, _reason) in sorted(resource["devices"].items()):
            state_now, reason = there["devices"].get(device, ("missing", None))
            if state == "healthy" and state_now != "healthy" and device not in _withheld(there):
                sentences.append("{}: {} is {}{}".format(name, device, state_now, ", " + reason if reason else ""))
    if before.listed is not None and now.listed is None:
        sentences.append("the kubelet no longer answers")
    return sentences
