# SPDX-License-Identifier: Apache-2.0
"""What the running plugin serves at a moment, and what it lacks of what it served before.

Runs on nodes: Python 3.9, standard library only. The command ``status`` of an environment is asked: it has the plugin's
own words and the kubelet's PodResources.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import COMMAND

# Seconds that an answer may take.
_TIMEOUT = 30
# Begins the reason of a device that is held by another name, or may be (holdings._held and IN_DOUBT of the plugin).
_WAITS = ("held by ", "the kubelet has not said yet")


class Serving(NamedTuple):
    """An answer.

    resources: name to {"registered": whether the kubelet has its stream open, "devices": id to (state, reason)}; None
        where no plugin answers, for which problem is the reason.
    listed: resource to the ids that the kubelet can give out; None where no kubelet answers.
    not_ready: why the plugin is not ready, a sentence each.
    """

    resources: Mapping[str, Any] | None
    listed: Mapping[str, Any] | None
    not_ready: tuple = ()
    problem: str = ""


def ask(environment, config):
    """What is served now, by the command of an environment and a configuration file; never fails."""
    command = [os.path.join(environment, "bin", COMMAND), "status", "--config", config, "--output", "json"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False)
        return _read(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError) as error:
        return Serving(None, None, problem=str(error))
    except (ValueError, KeyError, TypeError):
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        said = said or ["it ended with exit code %d and said nothing" % done.returncode]
        return Serving(None, None, problem=f"{command[0]} status: {said[-1]}")


def _read(data):
    plugin = data["plugin"]
    listed = data["allocatable"] if data["source"] == "kubelet" else None
    if plugin is None:
        return Serving(None, listed, problem=data["problem"])
    resources = {
        resource["name"]: {
            "registered": resource["registered"],
            "devices": {device["id"]: (device["state"], device["reason"]) for device in resource["devices"]},
        }
        for resource in plugin["resources"]
    }
    return Serving(resources, listed, tuple(plugin["not_ready"]))


def _waiting(resource):
    """The devices that pods hold by another name: releases that did not know that offered them all the same."""
    return {device for device, (_state, reason) in resource["devices"].items() if (reason or "").startswith(_WAITS)}


def lacking(before, now):
    """What is served no more, a sentence each; none where all that was there before is there.

    What was not registered or not healthy before need not be so now. Where nobody answered before, being ready is what
    is asked for, as far as there is a kubelet to be ready for.
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
            sentences.append(f"{name}: the kubelet has no stream open")
        elif before.listed is not None and now.listed is not None:
            gone = set(before.listed.get(name, ())) - set(now.listed.get(name, ()))
            # The ids of shares are the device's with a number.
            gone = {each for each in gone if each.partition("::")[0] not in _waiting(there)}
            if gone:
                sentences.append("{}: the kubelet does not list {}".format(name, ", ".join(sorted(gone))))
        for device, (state, _reason) in sorted(resource["devices"].items()):
            state_now, reason = there["devices"].get(device, ("not there", None))
            if state == "healthy" and state_now != "healthy" and device not in _waiting(there):
                sentences.append("{}: {} is {}{}".format(name, device, state_now, ", " + reason if reason else ""))
    if before.listed is not None and now.listed is None:
        sentences.append("no kubelet answers any more")
    return sentences
