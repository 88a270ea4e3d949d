"""Health and readiness over HTTP, for balancers and probes: no token, and nothing that helps a stranger.

`/healthz` is about the process: whoever restarts what fails looks there. `/readyz` is about new clients: a
balancer sends them elsewhere while it says 503.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from daemon.clients.doors.http.head import Refusal
from daemon.config.listen import numeric, split_authority
from daemon.host.notify import Readiness

if TYPE_CHECKING:
    from daemon.clients.doors.http.head import Head

HEALTH, READY = "/healthz", "/readyz"
PATHS = frozenset({HEALTH, READY})

METHODS = ("GET", "HEAD")


TEXTS = {
    Readiness.STARTING: "starting: not yet\n",
    Readiness.SERVING: "ready\n",
    Readiness.DRAINING: "stopping: whoever is here is still served, others are to go elsewhere\n",
}


def health(head: Head, readiness: Readiness) -> tuple[HTTPStatus, str] | None:
    """The status and the text that a request for health is answered with; None if it is for something else.

    Raises:
        Refusal: it would do more than read.
    """
    if head.path not in PATHS:
        return None
    if head.method not in METHODS:
        text = f"health can only be read: GET {head.path}\n"
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"allow": ", ".join(METHODS)})
    if head.path == HEALTH:
        return HTTPStatus.OK, "ok\n"
    is_ready = readiness is Readiness.SERVING
    return HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE, TEXTS[readiness]


def is_probe(head: Head) -> bool:
    """Whether a request is for health and names no host, or an address: probes know nothing better to send.

    Such a request needs no check of its Host: no web page can send it by a name of its own.
    """
    if head.path not in PATHS:
        return False
    sent = head.headers.get("host", "")
    host, _port = split_authority(sent)
    return not sent or (host is not None and numeric(host) is not None)
