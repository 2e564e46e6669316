"""The probe command of the plugin's pod: requests one page over the unix socket, which no other pod can flood.

    python -m node_device_plugin.status_api.probe SOCKET PATH INSTANCE

INSTANCE is the file with the name of the instance that serves on the node. If the answer is 200, the exit code is 0.
Otherwise, the exit code is 1 and standard output has the reason. The module imports little, because the kubelet runs
the probe every few seconds.
"""

import os
import socket
import struct
import sys
import time

from ..support.bounded_reads import beginning_of, received
from ..support.sockets import INSTANCE

#: Timeout in seconds.
_TIMEOUT = 8.0
#: Bytes of an answer.
_LARGEST = 1 << 20


def probe(path: str, page: str, instance: str = "") -> str:
    """Why the answer is not 200; empty for 200. path: the path of the socket. instance: of the file with the name."""
    until = time.monotonic() + _TIMEOUT
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_TIMEOUT)
            client.connect(path)
            # While this pod waits, another instance may own the socket. The pid of that instance is 0 here, because its
            # process is in another PID namespace.
            pid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if not pid:
                return _other(instance) or f"another instance of the plugin serves {path}"
            client.sendall((f"GET {page} HTTP/1.1\r\n\r\n").encode())
            head, _end, body = received(client, until, _LARGEST).partition(b"\r\n\r\n")
    except OSError as error:
        return _other(instance) or f"{path}: {error}"
    return "" if head.startswith(b"HTTP/1.1 200 ") else (body or head or b"no answer").decode("latin-1").rstrip()


def _other(instance: str) -> str:
    """The message if an instance of another name serves on the node; else empty."""
    name = beginning_of(instance).partition("\n")[0]
    is_other = name not in ("", os.environ.get(INSTANCE))
    return f"{name} serves this node's devices, so this pod waits until that instance ends" if is_other else ""


if __name__ == "__main__":
    problem = probe(*sys.argv[1:])
    print(problem or "ok")
    sys.exit(bool(problem))
