"""The proxy for an API server: from the kubeconfig, or from the environment by kubectl's rules.

kubectl uses golang.org/x/net/http/httpproxy. By its rules, this machine itself needs no proxy, and NO_PROXY may
contain networks (10.0.0.0/8) and ports. Python's own rules differ.
"""

from __future__ import annotations

import base64
import ipaddress
import urllib.parse
from collections.abc import Mapping
from typing import Union

#: The default port of each scheme.
_PORTS = {"http": 80, "https": 443}
_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]


class ProxyError(ValueError):
    """A proxy that this client cannot use."""


def proxy_for(server: str, environment: Mapping[str, str]) -> str:
    """The environment's proxy for a server's URL; empty for none.

    environment: in the form of urllib.request.getproxies_environment.
    """
    parts = urllib.parse.urlsplit(server)
    proxy = environment.get(parts.scheme, "")
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS[parts.scheme]
    return "" if not proxy or _is_direct(host, port, environment.get("no", "")) else proxy


def _is_direct(host: str, port: int, exceptions: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_fits(each.strip().lower(), host, port, address) for each in exceptions.split(","))


def _fits(exception: str, host: str, port: int, address: _Address) -> bool:
    """Whether an entry of NO_PROXY matches the host. Entries: ``*``, a network, address or domain, maybe with port."""
    if not exception:
        return False
    if exception == "*":
        return True
    if "/" in exception:
        try:
            return address is not None and address in ipaddress.ip_network(exception, strict=False)
        except ValueError:
            return False
    name, separator, number = exception.rpartition(":")
    if separator and number.isdecimal() and _address(exception) is None:
        if int(number) != port:
            return False
        exception = name
    meant = _address(exception.strip("[]"))
    if meant is not None or address is not None:
        return meant == address
    domain = exception[1:] if exception.startswith("*.") else exception
    # ".example.com" matches only subdomains, and "example.com" matches the domain, too.
    return host.endswith("." + domain.lstrip(".")) or (host == domain and not exception.startswith("*."))


def _address(text: str) -> _Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


class Proxy:
    """An HTTP proxy for every connection. Raises ProxyError for any other scheme or an unusable address."""

    def __init__(self, proxy: str) -> None:
        try:
            parts = urllib.parse.urlsplit(proxy if "://" in proxy else "http://" + proxy)
            port = parts.port or _PORTS["http"]
        except ValueError:
            # Python's message may quote a part of the password, so do not chain it either.
            raise ProxyError(
                "the proxy's address is invalid: use http://HOST:PORT, and escape special characters of a password, "
                "such as %23 for #"
            ) from None
        if parts.scheme != "http" or not parts.hostname:
            raise ProxyError(f"{parts.scheme}:// proxies are not supported: use http://HOST:PORT")
        #: Host and port, without credentials.
        self.at = ("[%s]:%d" if ":" in parts.hostname else "%s:%d") % (parts.hostname, port)
        #: What the proxy gets beside each request, or with the request for a tunnel.
        self.headers: dict[str, str] = {}
        if parts.username is not None:
            pair = "{}:{}".format(*tuple(urllib.parse.unquote(each or "") for each in (parts.username, parts.password)))
            self.headers["Proxy-Authorization"] = "Basic {}".format(base64.b64encode(pair.encode()).decode("ascii"))
