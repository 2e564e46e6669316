# SPDX-License-Identifier: Apache-2.0
"""Finds which node of its cluster this machine is, by its kubelet's certificate and the ids that kubelets report."""

from __future__ import annotations

import base64
import os
import re
import ssl

from .node_device_plugin.support.bounded_reads import text_of

# The files of the ids in a node object, in the kubelet's order. Source: machine/info.go and utils/sysfs/sysfs.go of
# cadvisor 0.56.2, with the defaults of its options.
_MACHINE_ID = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_SYSTEM_UUID = (
    "/sys/class/dmi/id/product_uuid",
    "/proc/device-tree/system-id",
    "/proc/device-tree/vm,uuid",
    "/etc/machine-id",
)
# A kubelet's user in its cluster is the common name of its client certificate.
_NODE_USER = "system:node:"
_COMMON_NAME = b"\x55\x04\x03"
_SEQUENCE = 0x30
# Python's standard library has no YAML parser. This pattern also matches in JSON.
_FIELD = re.compile(r"""\bclient-certificate(-data)?["']?\s*:\s*["']?([^\s"',}]+)""")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def node_identity(kubelet, root="/"):
    """Return what is known about this machine's node: ``name``, ``machine_id`` and ``system_uuid``; each may be None.

    kubelet: the facts of a trusted kubelet, or None. root: the directory of the system's files.
    """
    return {
        "name": _name((kubelet or {}).get("kubeconfig")),
        "machine_id": _first(root, _MACHINE_ID),
        "system_uuid": _first(root, _SYSTEM_UUID),
    }


def _first(root, paths):
    """Return the first text in the files; None if there is none, or if this user may not read a file before it."""
    for path in paths:
        path = os.path.join(root, path.lstrip("/"))
        text = text_of(path)
        if text is None and os.path.exists(path):
            return None
        if text and text.strip("\0 \t\r\n"):
            return text.strip("\0 \t\r\n")
    return None


def _name(path):
    """Return the node's name in the certificates of a kubelet's kubeconfig; None if they do not name one node."""
    text = (text_of(path) if path else None) or ""
    users = {_common_name(_pem(os.path.dirname(path), *found)) for found in _FIELD.findall(text)}
    names = {user[len(_NODE_USER) :] for user in users if user and user.startswith(_NODE_USER)}
    return names.pop() if len(users) == len(names) == 1 else None


def _pem(directory, is_data, value):
    if not is_data:
        return text_of(os.path.join(directory, value)) or ""
    try:
        return base64.b64decode(value, validate=True).decode("ascii")
    except ValueError:
        return ""


def _common_name(pem):
    """Return the common name in the subject of a text's first certificate; None without one. Format: RFC 5280."""
    found = _CERTIFICATE.search(pem)
    try:
        ((_tag, certificate),) = _elements(ssl.PEM_cert_to_DER_cert(found[0]))
        _tag, signed = next(_elements(certificate))
        # The sequences are the algorithm, the issuer, the validity, the subject and the key.
        subject = [content for tag, content in _elements(signed) if tag == _SEQUENCE][3]
        for _tag, attributes in _elements(subject):
            for _tag, attribute in _elements(attributes):
                (_tag, kind), (_tag, value) = _elements(attribute)
                if kind == _COMMON_NAME:
                    return value.decode("utf-8")
    except (IndexError, StopIteration, TypeError, ValueError):
        pass
    return None


def _elements(data):
    """Yield tag and content of each element of a DER text."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise ValueError("the text is cut off")
        yield tag, data[at : at + length]
        at += length
