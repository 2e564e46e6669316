# SPDX-License-Identifier: Apache-2.0
"""Looks up users and groups. Runs on nodes: Python 3.9, standard library only."""

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
