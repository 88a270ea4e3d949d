"""The smallest possible proxy in Python, as a yardstick: it passes bytes on without parsing them.

Run as `python bare.py SOCKET COMMAND...`: each client gets its own server process, and clients are served one
after the other. It parses no message, so clients cannot share a server, and it stalls at a full pipe.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys

READ_BYTES = 256 * 1024
"""As many as `daemon.wire.link` reads."""


def main(path: str, command: list[str]) -> None:
    """Serve until killed."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            client, _ = listener.accept()
            with (
                client,
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as server,
            ):
                assert server.stdin is not None
                assert server.stdout is not None
                pass_on(client.fileno(), server.stdin.fileno(), server.stdout.fileno())
                server.terminate()


def pass_on(client: int, to_server: int, from_server: int) -> None:
    """Copy bytes both ways until either side ends."""
    there = {client: to_server, from_server: client}
    with select.epoll() as poll:
        for fd in there:
            poll.register(fd, select.EPOLLIN)
        while True:
            for fd, _ in poll.poll():
                data = os.read(fd, READ_BYTES)
                if not data:
                    return
                os.write(there[fd], data)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
