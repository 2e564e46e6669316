# SPDX-License-Identifier: Apache-2.0
"""Looks up users and groups, also of a declared configuration.

Runs on nodes: Python 3.9. For a configuration, the caller has loaded the plugin's code (module_utils/node_code.py).
"""

from __future__ import annotations

import grp
import pwd


def numbers(users=(), groups=()):
    """Return the uids of users and the gids of groups by name; None for an unknown name."""
    return {
        "users": {name: _number(pwd.getpwnam, name, "pw_uid") for name in users},
        "groups": {name: _number(grp.getgrnam, name, "gr_gid") for name in groups},
    }


def _number(look_up, name, field):
    try:
        return getattr(look_up(name), field)
    except KeyError:
        return None


def with_numbers(configuration, facts):
    """Return a Configuration with the node's numbers of users and groups, and a problem for each unknown name.

    configuration: as data. facts: of a `Node`. They keep the result, so that a preflight parses a configuration once.
    """
    from node_device_plugin.declaration import accounts, parse_configuration

    parsed = facts.setdefault("configurations", [])
    result = next((result for data, result in parsed if data == configuration), None)
    if result is None:
        named = parse_configuration(configuration, has_names=True)
        result = accounts.with_numbers(named, numbers(**accounts.names(named.resources)))
        parsed.append((configuration, result))
    return result
