# SPDX-License-Identifier: Apache-2.0
"""Reads the arguments of an action's task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError

from .declaration import plain

#: Maps options that a task may omit to the host variables with their defaults.
_OF_THE_HOST = {
    "kubeconfig": "node_devices_kubeconfig",
    "node_name": "node_devices_node_name",
    "api_only": "node_devices_api_only",
    "cri_socket": "node_devices_cri_socket",
    "mode": "device_plugin_mode",
    "deployment": "device_plugin_deployment",
}


def of(action: Any, task_vars: Any = None, *of_the_host: str) -> dict[str, Any]:
    """Return the arguments of an action's task as plain data, without omitted arguments.

    of_the_host: options whose default is a host variable.
    """
    given: dict[str, Any] = plain({key: value for key, value in action._task.args.items() if value is not None})
    for option in of_the_host:
        value = (task_vars or {}).get(_OF_THE_HOST[option])
        if option not in given and value is not None:
            given[option] = plain(action._templar.template(value))
    return given


def without_kubeconfig(why: str) -> str:
    """Return the message for a host without a kubeconfig. why: what needs the kubeconfig."""
    return f"node_devices_kubeconfig: not set, but {why}: set it to a kubeconfig file on the controller"


def minutes(arguments: Mapping[str, Any], variable: str) -> float:
    """Return the argument ``minutes``, default 10. Raises AnsibleError. variable: the user's variable in messages."""
    given = arguments.get("minutes", 10)
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = -1
    # This form of the condition also rejects NaN.
    if not number >= 0:
        raise AnsibleError(f"{variable}: must be a number of minutes, 0 or more, not {given}")
    return number
