"""Where the plugin serves its metrics: ``host:port``."""

from __future__ import annotations

import ipaddress


def parse_http_address(text: str) -> tuple[str, int]:
    """``127.0.0.1:9819``, ``[::1]:9819`` or ``:9819`` (every address of the node) as host and port.

    ValueError with what is allowed. Host names are none of it: what they resolve to decides who can reach it.
    """
    host, separator, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not separator or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"must be ADDRESS:PORT such as 127.0.0.1:9819, [::1]:9819 or :9819, or empty, not {text!r}")
    if not host:
        return "", int(port)
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        address = None
    if address is None or bracketed != (address.version == 6):
        raise ValueError(f"{host!r} is no IP address (an IPv6 address stands in brackets)")
    return str(address), int(port)


def http_address_problem(text: str) -> str | None:
    """Why ``text`` is no address to serve at, or None; empty is off."""
    try:
        if text:
            parse_http_address(text)
    except ValueError as error:
        return str(error)
    return None
