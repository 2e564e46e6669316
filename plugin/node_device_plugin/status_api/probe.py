"""The probe command of the plugin's pod: requests one page over the unix socket, which no other pod can flood.

    python -m node_device_plugin.status_api.probe SOCKET PATH

If the answer is 200, the exit code is 0. Otherwise, the exit code is 1 and standard output has the reason. The
module imports little, because the kubelet runs the probe every few seconds.
"""

import socket
import struct
import sys
import time

from ..support.bounded_reads import received

#: Timeout in seconds.
_TIMEOUT = 8.0
#: Bytes of an answer.
_LARGEST = 1 << 20


def probe(path: str, page: str) -> str:
    """Why the answer is not 200; empty for 200. path: the path of the socket."""
    until = time.monotonic() + _TIMEOUT
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_TIMEOUT)
            client.connect(path)
            # While this pod waits, another instance may own the socket. The pid of that instance is 0 here, because its
            # process is in another PID namespace.
            pid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if not pid:
                return f"another instance of the plugin serves {path}"
            client.sendall((f"GET {page} HTTP/1.1\r\n\r\n").encode())
            head, _end, body = received(client, until, _LARGEST).partition(b"\r\n\r\n")
    except OSError as error:
        return f"{path}: {error}"
    return "" if head.startswith(b"HTTP/1.1 200 ") else (body or head or b"no answer").decode("latin-1").rstrip()


if __name__ == "__main__":
    problem = probe(sys.argv[1], sys.argv[2])
    print(problem or "ok")
    sys.exit(bool(problem))
