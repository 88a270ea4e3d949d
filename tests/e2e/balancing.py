"""HAProxy from the distribution, with the shipped configuration, in front of a test's daemons."""

import csv
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.harness import ROOT, free_port, own_directory
from tests.waiting import WAIT, eventually, run_to_end

SHIPPED = ROOT / "config" / "haproxy.cfg"

BIND = "    bind :443 ssl crt /etc/haproxy/mcp.example.org.pem alpn h2,http/1.1\n"
"""The listener of the shipped file."""

PLAIN = "    # bind :80\n"
"""The shipped file's alternative without TLS."""

OWN_RIGHTS = ("    user haproxy\n", "    group haproxy\n", "    chroot /var/lib/haproxy\n")
"""Lines that need root, which tests are not."""

SERVERS = ("    server one 192.0.2.11:7337\n", "    server two 192.0.2.12:7337\n")


def haproxy() -> str:
    """The path of HAProxy; Debian keeps it outside a user's PATH."""
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    assert found, "haproxy is missing: `make test` installs it, or sudo apt install haproxy"
    return found


def replaced(text: str, old: str, new: str) -> str:
    """The text with one replacement; `old` must occur exactly once."""
    assert text.count(old) == 1, f"{SHIPPED} no longer has this once: {old!r}"
    return text.replace(old, new)


def checked(path: Path) -> subprocess.CompletedProcess[str]:
    """The result of `haproxy -c` for a file."""
    return run_to_end([haproxy(), "-c", "-f", str(path)])


class Balancer:
    """A running HAProxy."""

    def __init__(self, directory: Path, daemons: Mapping[str, int], certificate: Path | None = None) -> None:
        """Write the configuration: the shipped one with other addresses.

        Args:
            directory: a directory for this balancer.
            daemons: the port of each daemon on loopback, by the names of the shipped file.
            certificate: certificate and key of the listener; None for no TLS.
        """
        self.port = free_port()
        self.file = directory / "haproxy.cfg"
        self._directory = directory
        self._admin = directory / "admin"
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        text = SHIPPED.read_text()
        for line in OWN_RIGHTS:
            text = replaced(text, line, "")
        own_global = f"log stderr format raw local0\n    stats socket {self._admin} level admin"
        text = replaced(text, "log /dev/log local0 info", own_global)
        address = f"127.0.0.1:{self.port}"
        # A name for all of the machine, and another balancer may be running.
        text = text.replace("abns@mcpd-once", f"abns@mcpd-once-{self.port}")
        if certificate is None:
            text = replaced(replaced(text, BIND, ""), PLAIN, f"    bind {address}\n")
        else:
            own = BIND.replace(":443", address).replace("/etc/haproxy/mcp.example.org.pem", str(certificate))
            text = replaced(text, BIND, own)
        for line, (name, port) in zip(SERVERS, daemons.items(), strict=True):
            assert name in line
            text = replaced(text, line, f"    server {name} 127.0.0.1:{port}\n")
        self.file.write_text(text)

    @property
    def pid(self) -> int:
        """The pid of HAProxy."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start HAProxy, and wait until it answers its administration."""
        with self._log.open("ab") as log:
            words = [haproxy(), "-db", "-f", str(self.file)]
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(self._answers, self.said)

    def stop(self) -> None:
        """End HAProxy, and with it all connections through it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(WAIT)

    def states(self) -> dict[str, str]:
        """HAProxy's state of each daemon: `UP`, `DOWN`, or something between."""
        rows = csv.DictReader(self.ask("show stat").lstrip("# ").splitlines())
        found = [(row["svname"], row["status"]) for row in rows if row["pxname"] == "mcpd"]
        return {name: state for name, state in found if name != "BACKEND"}

    def sees(self, **states: str) -> None:
        """Wait until HAProxy has these states for the daemons."""
        eventually(lambda: states.items() <= self.states().items(), lambda: (self.states(), self.said()))

    def ask(self, command: str) -> str:
        """Send a command to HAProxy's administration."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(WAIT)
            asking.connect(str(self._admin))
            asking.sendall(command.encode() + b"\n")
            with asking.makefile("r") as said:
                return said.read()

    def said(self) -> str:
        """HAProxy's log so far."""
        return self._log.read_text()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        try:
            return bool(self.ask("show info"))
        except OSError:
            return False


@contextmanager
def balanced(daemons: Mapping[str, int], **more: Any) -> Iterator[Balancer]:
    """A balancer in front of daemons; its directory is removed in the end."""
    directory = own_directory()
    balancer = Balancer(directory, daemons, **more)
    try:
        balancer.start()
        yield balancer
    finally:
        balancer.stop()
        shutil.rmtree(directory)
