#!/usr/bin/env python3
"""Runs a command if the machine has no external route and no external connection. Otherwise runs nothing and fails.

Usage: no_way_out.py [COMMAND...]
"""

import errno
import os
import socket
import sys

# Addresses for documentation (RFC 5737, RFC 3849). Without a route, a connection fails immediately.
OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
NO_WAY = (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def routes():
    """Yield the kernel's routes, except those of the loopback device."""
    for path, skip in (("/proc/self/net/route", 1), ("/proc/self/net/ipv6_route", 0)):
        if os.path.exists(path):
            with open(path) as file:
                for line in file.read().splitlines()[skip:]:
                    fields = line.split()
                    if "lo" not in (fields[0], fields[-1]):
                        yield " ".join(fields)


def answer(family, address):
    """Return the result of a connection to an external address."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(2)
            attempt.connect((address, 443))
    except OSError as error:
        return error
    return None


found = list(routes())
if found:
    sys.exit("a route leads out: %s" % "; ".join(found))
for family, address in OUTSIDE:
    said = answer(family, address)
    if said is None or said.errno not in NO_WAY:
        sys.exit("a connection to %s ends with %s, not for want of a route" % (address, said or "success"))
if sys.argv[1:]:
    os.execvp(sys.argv[1], sys.argv[1:])
print("no way out")
