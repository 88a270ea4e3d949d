"""An MCP server of the SDK's that wants tokens: told ISSUER INTROSPECTION [SCOPE], it prints its port."""

import asyncio
import socket
import sys

import httpx2
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl


class Introspecting:
    """Asks the authorization server about tokens (RFC 7662)."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    async def verify_token(self, token: str) -> AccessToken | None:
        async with httpx2.AsyncClient(trust_env=False) as client:
            shown = {"client_id": "protected-server", "client_secret": "introspects"}
            response = await client.post(self.endpoint, data={"token": token, **shown})
        told = response.json()
        if not told.get("active"):
            return None
        return AccessToken(
            token=token,
            client_id=told["client_id"],
            scopes=told.get("scope", "").split(),
            resource=told.get("aud"),
        )


def main() -> None:
    issuer, introspection, *scopes = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = MCPServer(
        "protected",
        token_verifier=Introspecting(introspection),
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(issuer),
            resource_server_url=AnyHttpUrl(f"http://127.0.0.1:{port}/mcp"),
            required_scopes=scopes or ["read"],
            validate_token_resource=True,
        ),
    )

    @server.tool()
    def secret() -> str:
        """Say what only those who are logged in hear."""
        return "it was you"

    app = server.streamable_http_app(json_response=True, stateless_http=True)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener]))


main()
