"""What must hold for `metrics`: numbers without a password are served to this machine only."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from daemon.config.hints import quoted
from daemon.config.jsonc import below
from daemon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.config.model import Metrics

MAX_PORT = 65535
"""The largest TCP port."""

SUGGESTED = "127.0.0.1:9464"
"""What Prometheus' own list of ports has for exporters of programs."""

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:/@]+))(?::([0-9]{1,5}))?", re.ASCII)
"""HOST or HOST:PORT, an IPv6 address between brackets (RFC 3986, 3.2)."""


def metrics_faults(metrics: Metrics, trail: str) -> Iterator[Fault]:
    """Everything wrong with `metrics`."""
    if metrics.listen is None:
        return
    here = below(trail, "listen")
    host, port = split_authority(metrics.listen)
    if host is None or port is None or not 0 < port <= MAX_PORT:
        message = f"{quoted(metrics.listen)} is not HOST:PORT: write {SUGGESTED}"
        yield Fault(path=here, message=message)
    elif not is_loopback(host):
        message = (
            f"{quoted(host)} is no loopback address, and metrics have no password. Write {SUGGESTED}, and let a"
            " proxy serve other machines"
        )
        yield Fault(path=here, message=message)


def split_authority(text: str) -> tuple[str | None, int | None]:
    """Host and port of `HOST:PORT`; the host is None if it is not that, the port if none stands there."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None, None
    bracketed, plain, port = found.groups()
    return bracketed or plain, None if port is None else int(port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and no other: `localhost`, 127.0.0.0/8 or ::1."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address == IPv6Address("::1") if isinstance(address, IPv6Address) else address.is_loopback
