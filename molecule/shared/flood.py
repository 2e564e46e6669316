"""Opens connections to an HTTP port and sends nothing: flood.py HOST PORT SECONDS. Prints their number."""

import contextlib
import socket
import sys
import time

host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
opened, idle, until = 0, [], time.monotonic() + seconds
while time.monotonic() < until:
    with contextlib.suppress(OSError):
        idle.append(socket.create_connection((host, port), timeout=1))
        opened += 1
    if len(idle) > 500:
        idle.pop(0).close()
    time.sleep(0.002)
print(opened, "connections")
