"""The address of the plugin's HTTP server: ``host:port``."""

from __future__ import annotations

import ipaddress


def parse_http_address(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:9819``, ``[::1]:9819`` or ``:9819`` (all addresses of the node).

    Raises ValueError with the allowed forms. A host name is an error, because its resolution would
    decide who has access.
    """
    host, separator, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not separator or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"must be empty or ADDRESS:PORT, such as 127.0.0.1:9819, [::1]:9819 or :9819, not {text!r}")
    if not host:
        return "", int(port)
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        address = None
    if address is None or bracketed != (address.version == 6):
        raise ValueError(f"{host!r} is not an IP address: host names are not allowed, and IPv6 addresses need brackets")
    return str(address), int(port)


def http_address_problem(text: str) -> str | None:
    """The problem with an address of the server, or None. An empty address turns the server off."""
    try:
        if text:
            parse_http_address(text)
    except ValueError as error:
        return str(error)
    return None
