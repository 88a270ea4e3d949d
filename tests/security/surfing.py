"""A browser that does what browsers do not: any path, any header, any body, byte by byte."""

import http.client
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from urllib.parse import quote, urlencode, urlsplit

import attrs

from tests.e2e.harness import Daemon
from tests.waiting import WAIT

PAGES = (
    *("/ui", "/ui/servers", "/ui/tools", "/ui/tools?q=canary", "/ui/sessions", "/ui/calls"),
    *("/ui/savings?span=hour", "/ui/settings"),
)
"""Pages that every console has."""


@attrs.frozen
class Response:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str


@attrs.define
class Surfer:
    """Somebody at the console of a daemon."""

    authority: str
    """Where it is: `127.0.0.1:1234`."""
    cookie: str = ""

    @classmethod
    def without_session(cls, daemon: Daemon) -> "Surfer":
        """Somebody whom nobody has let in."""
        return cls(urlsplit(daemon.ask("ui")["link"]).netloc)

    @classmethod
    def let_in(cls, daemon: Daemon, *, read_only: bool = False) -> "Surfer":
        """Somebody who has followed a link."""
        link = urlsplit(daemon.ask("ui", readOnly=read_only)["link"])
        surfer = cls(link.netloc)
        entered = surfer.ask("GET", f"{link.path}?{link.query}")
        assert entered.status == 200, entered
        surfer.cookie = entered.headers["set-cookie"].partition(";")[0]
        return surfer

    def ask(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Make one request, on a connection of its own."""
        host, _, port = self.authority.rpartition(":")
        own = {"cookie": self.cookie} if self.cookie else {}
        with closing(http.client.HTTPConnection(host, int(port), timeout=WAIT)) as connection:
            connection.request(method, target, body or None, {**own, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode()
            return Response(answer.status, {key.lower(): value for key, value in answer.headers.items()}, text)

    def get(self, target: str, **headers: str) -> Response:
        """Ask for a page."""
        return self.ask("GET", target, headers=headers)

    @property
    def form_token(self) -> str:
        """What this session's forms carry."""
        found = re.search(r'name="form_token" value="([^"]+)"', self.get("/ui").text)
        assert found is not None
        return found[1]

    def send(self, target: str, headers: Mapping[str, str] | None = None, /, **fields: str) -> Response:
        """Send a form as a page of the console does; `headers` replace those of a browser, if not empty."""
        own = {
            "origin": f"http://{self.authority}",
            "sec-fetch-site": "same-origin",
            "content-type": "application/x-www-form-urlencoded",
            **(headers or {}),
        }
        return self.ask(
            "POST", target, urlencode(fields).encode(), {key: value for key, value in own.items() if value}
        )

    def stream(self, page: str) -> Iterator[str]:
        """The first changes that the stream of a page tells: all of it, as nothing was seen before."""
        host, _, port = self.authority.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=WAIT) as connection:
            request = f"GET /ui/live?at={quote(page, safe='')} HTTP/1.1\r\nHost: {self.authority}\r\n"
            connection.sendall(f"{request}Cookie: {self.cookie}\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                while line := answer.readline():
                    yield line.decode().rstrip("\r\n")

    def data(self, page: str) -> str:
        """The JSON of the first event of a page's stream."""
        return next(line for line in self.stream(page) if line.startswith("data: ")).removeprefix("data: ")

    def pages_of(self, daemon: Daemon) -> list[str]:
        """All pages that show something of this daemon."""
        status, sessions = daemon.ask("status"), daemon.ask("sessions")
        names = [quote(name, safe="") for name in status["servers"]]
        keys = [each["key"] for each in sessions["sessions"] if each.get("key")]
        categories = daemon.ask("tools")["categories"].values()
        tools = [(each["server"], each["tool"]) for found in categories for each in found["tools"].values()]
        return [
            *PAGES,
            *(f"/ui/servers/{name}" for name in names),
            *(f"/ui/tools?server={name}" for name in names),
            *(f"/ui/sessions/{quote(key, safe='')}" for key in keys),
            *(f"/ui/tools/{server}/{quote(tool, safe='')}" for server, tool in tools),
        ]
