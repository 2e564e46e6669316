# SPDX-License-Identifier: Apache-2.0
"""Finds and hides values that come from Ansible Vault.

Ansible marks a vaulted value only until an expression combines the value with another text. Therefore this module
searches results for the host's decrypted values. It knows two sources: ``!vault`` values, and encrypted files.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible._internal._datatag._tags import Origin
from ansible.parsing.vault import EncryptedString

from ...plugin.node_device_plugin.declaration.variables import is_expression, plain

#: What a result has instead of a vaulted value.
HIDDEN = "(vaulted)"
# A shorter value is hidden only where it is a whole value, because it occurs in other words, too.
_SHORTEST = 4
# Variables with other hosts' values, or with a copy of all values.
_SKIPPED = frozenset(("hostvars", "vars", "groups", "ansible_facts", "ansible_play_hosts", "ansible_play_batch"))
# The beginnings of the collection's variables.
_PREFIXES = ("node_", "cdi_", "host_devices_", "device_plugin_", "extended_resources_", "verification_")
_NAME = re.compile(r"[A-Za-z_]\w*")
# Matches expressions that may use any variable.
_ANY = re.compile(r"\b(lookup|query|q|vars|hostvars)\b|\.j2$")


def values_of(action: Any, task_vars: Any) -> Values:
    """Return the vaulted values of an action's host. Without a vault password, Ansible has decrypted nothing."""
    has_password = getattr(getattr(getattr(action, "_loader", None), "_vault", None), "secrets", None)
    used = _leaves(_used(task_vars, action._task.get_ds())) if has_password else ()
    return Values(filter(None, (_decrypted(leaf, action._templar.template) for leaf in used)))


class Values:
    """Vaulted values of a host."""

    def __init__(self, values: Any) -> None:
        texts = {text for value in values for text in _forms(value) if text and text != HIDDEN}
        self._long = sorted((text for text in texts if len(text) >= _SHORTEST), key=len, reverse=True)
        self._short = sorted(text for text in texts if len(text) < _SHORTEST)

    def __bool__(self) -> bool:
        return bool(self._long or self._short)

    def hide(self, data: Any) -> Any:
        """Return data with ``HIDDEN`` instead of each vaulted value."""
        if isinstance(data, Mapping):
            return {self.hide(key): self.hide(value) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self.hide(item) for item in data]
        if not isinstance(data, str):
            return data
        if data in self._short:
            return HIDDEN
        for text in self._long:
            data = data.replace(text, HIDDEN)
        for text in self._short:
            # As a value in the text of a file.
            for quote in ('"', "'"):
                data = data.replace(f"{quote}{text}{quote}", f"{quote}{HIDDEN}{quote}")
        return data

    def found_in(self, data: Any) -> bool:
        """Return whether data contains a vaulted value."""
        return bool(self) and self.hide(data) != plain(data)


def _used(variables: Mapping[str, Any] | None, task: Any = None) -> list[Any]:
    """Return the values of the collection's variables, and of the variables that their expressions or the task's name.

    Each decryption takes milliseconds, and a host may have many other vaulted variables. task: as in the playbook.
    """
    variables = variables or {}
    usable = {name: value for name, value in variables.items() if name not in _SKIPPED}
    seen = {name: None for name in usable if name.startswith(_PREFIXES)}
    pending = [task, *(usable[name] for name in seen)]
    while pending:
        for text in filter(_is_expression, _leaves(pending.pop())):
            if _ANY.search(text):
                return list(usable.values())
            names = [name for name in _NAME.findall(text) if name in usable and name not in seen]
            seen.update(dict.fromkeys(names))
            pending += [usable[name] for name in names]
    return [usable[name] for name in seen]


def _is_expression(leaf: Any) -> bool:
    """Return whether a value may use variables, such as the name of a spec template, which may use any variable."""
    return isinstance(leaf, str) and not isinstance(leaf, EncryptedString) and ("{" in leaf or leaf.endswith(".j2"))


def _leaves(data: Any) -> Iterator[Any]:
    """Yield the values in mappings and lists."""
    if isinstance(data, (Mapping, list, tuple)):
        for value in data.values() if isinstance(data, Mapping) else data:
            yield from _leaves(value)
    else:
        yield data


def _decrypted(leaf: Any, template: Callable[[Any], Any]) -> str | None:
    """Return a vaulted value, or the value of an expression in an encrypted file; None for any other value."""
    try:
        if isinstance(leaf, EncryptedString):
            return str(leaf)
        origin = Origin.get_tag(leaf) if isinstance(leaf, str) else None
        if not (origin and origin.path and _is_encrypted(origin.path)):
            return None
        value = template(leaf) if is_expression(leaf) else leaf
    except Exception:  # without the value's password, or if the expression fails, the declaration cannot use the value
        return None
    return str(value) if isinstance(value, str) else None


@functools.cache
def _is_encrypted(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(14) == b"$ANSIBLE_VAULT"
    except OSError:
        return False


def _forms(value: str) -> Iterator[str]:
    """Yield a value as it may occur in a text: itself, in JSON, in base64, and each of several lines."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= 2 * _SHORTEST)
