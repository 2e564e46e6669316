# SPDX-License-Identifier: Apache-2.0
"""Selects the facts of Ansible's module setup that a node may set, below ``ansible_facts`` of its own host.

With ``inject_facts_as_vars``, Ansible makes each fact a variable of the same name, too, which overrides the inventory.
Therefore only facts of known names pass, and none for whose name the host has a variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...plugin.node_device_plugin.support.answers import ANY, AnswerError, shaped
from ...plugin.node_device_plugin.support.tables import some

_PREFIX = "ansible_"
#: Facts that are not part of the answer's meaning.
_OWN_KEYS = ("gather_subset", "module_setup")
_TEXTS = """
    architecture bios_date bios_vendor bios_version board_asset_tag board_name board_serial board_vendor board_version
    chassis_asset_tag chassis_serial chassis_vendor chassis_version distribution distribution_file_path
    distribution_file_variety distribution_file_search_string distribution_major_version distribution_minor_version
    distribution_release distribution_version domain form_factor fqdn hostname hostnqn iscsi_iqn kernel kernel_version
    lvm machine machine_id nodename os_family osrelease osrevision osversion pkg_mgr product_name product_serial
    product_uuid product_version python_version service_mgr system system_capabilities_enforced system_vendor
    user_dir user_gecos user_id user_shell userspace_architecture userspace_bits virtualization_role
    virtualization_type ssh_host_key_dsa_public ssh_host_key_dsa_public_keytype ssh_host_key_ecdsa_public
    ssh_host_key_ecdsa_public_keytype ssh_host_key_ed25519_public ssh_host_key_ed25519_public_keytype
    ssh_host_key_rsa_public ssh_host_key_rsa_public_keytype
"""
_NUMBERS = """
    effective_group_id effective_user_id memfree_mb memtotal_mb processor_cores processor_count processor_nproc
    processor_threads_per_core processor_vcpus real_group_id real_user_id swapfree_mb swaptotal_mb uptime_seconds
    user_gid user_uid
"""
_LISTS = """
    all_ipv4_addresses all_ipv6_addresses effective_group_ids fibre_channel_wwn flags interfaces mounts processor
    system_capabilities virtualization_tech_guest virtualization_tech_host
"""
_MAPPINGS = """
    apparmor cmdline date_time default_ipv4 default_ipv6 device_links devices dns env loadavg local
    locally_reachable_ips lsb memory_mb proc_cmdline python selinux systemd
"""
_FLAGS = "distribution_file_parsed fips is_chroot selinux_python_present"
_SHAPES: dict[str, Any] = {
    name: shape
    for names, shape in (
        (_TEXTS, str),
        (_NUMBERS, float),
        (_LISTS, [ANY]),
        (_MAPPINGS, {...: ANY}),
        (_FLAGS, bool),
    )
    for name in names.split()
}
# Without lvm's commands, the fact is a text.
_SHAPES["lvm"] = ANY
_MOST_NAMED = 5
# A network interface, whose fact is named like it. No variable of Ansible has a digit in its name. Other interfaces,
# such as cilium_host, are left out without a message, because most nodes of a cluster have some.
_INTERFACE = re.compile(r"lo|[a-z][a-z0-9_]*[0-9][a-z0-9_]*", re.IGNORECASE)
_OF_INTERFACE = {"device": str, ...: ANY}


def selected(facts: Mapping[str, Any], variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the facts that a node may set, and messages about those that it may not.

    facts: the answer of module setup. variables: all of the host's variables.
    """
    known = variables.get("ansible_facts") or {}
    # Module setup replaces characters that a variable's name cannot have.
    interfaces = {re.sub(r"[^A-Za-z0-9_]", "_", each) for each in _texts(facts.get(f"{_PREFIX}interfaces"))}
    found, refused, unknown = {}, [], []
    for key, value in facts.items():
        name = key.removeprefix(_PREFIX)
        shape = _shape(name, interfaces) if key.startswith(_PREFIX) else None
        if key in _OWN_KEYS or (shape is None and name in interfaces):
            continue
        if shape is None:
            unknown.append(key[:60])
        elif variables.get(key) not in (None, {}) and not known.keys() & {key, name}:
            refused.append(f"fact {key} is left out, because the host has a variable of this name: rename the variable")
        else:
            try:
                found[key] = shaped(shape, value, f"fact {key}")
            except AnswerError as error:
                refused.append(str(error))
    if unknown:
        refused.append(f"unknown facts are left out: {some(unknown, _MOST_NAMED)}")
    return found, refused


def _shape(name: str, interfaces: Iterable[str]) -> Any:
    if name in interfaces and name not in _SHAPES:
        return _OF_INTERFACE if _INTERFACE.fullmatch(name) else None
    return _SHAPES.get(name)


def _texts(data: Any) -> Iterable[str]:
    return [each for each in data if isinstance(each, str)] if isinstance(data, list) else ()
