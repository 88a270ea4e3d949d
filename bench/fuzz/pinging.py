"""Pings a daemon without pause, from a process of its own: the longest wait is how long its loop stood still.

Run as `python -S -E pinging.py SOCKET`. For each line on stdin, one on stdout: the longest wait since the last
one, in milliseconds, and how many pings there were.
"""

from __future__ import annotations

import select
import socket
import sys
import time

PAUSE = 0.002
"""Seconds between two pings: a stall that is worth telling is fifty times as long."""


def main(path: str) -> None:
    """Ping until stdin ends."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    longest, pings = 0.0, 0
    while True:
        begun = time.perf_counter()
        connection.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        heard = b""
        while not heard.endswith(b"\n"):
            chunk = connection.recv(65536)
            if not chunk:
                sys.exit("the daemon hung up")
            heard += chunk
        longest, pings = max(longest, time.perf_counter() - begun), pings + 1
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            if not sys.stdin.readline():
                return
            print(f"{longest * 1000:.1f} {pings}", flush=True)
            longest, pings = 0.0, 0


if __name__ == "__main__":
    main(sys.argv[1])
