"""The HTTP door of a daemon of the tests: where it is, and what opens it."""

from __future__ import annotations

from typing import Any

import attrs

from tests.e2e.harness import free_port

TOKEN = "f8f3a1c2-only-for-tests"


@attrs.frozen
class HttpDoor:
    """What clients have to know of it."""

    port: int = attrs.field(factory=free_port)

    @property
    def listen(self) -> dict[str, Any]:
        """What stands in `listen`."""
        return {"http": {"address": f"127.0.0.1:{self.port}", "tokens": TOKEN}}

    def url(self, *place: str) -> str:
        """The URL of a profile, and of a surface."""
        return "/".join((f"http://127.0.0.1:{self.port}/mcp", *place))

    def headers(self, key: str | None = None) -> dict[str, str]:
        """What each request carries, for a session with a key if there is one."""
        return {"Authorization": f"Bearer {TOKEN}", **({"Mcpd-Session": key} if key else {})}
