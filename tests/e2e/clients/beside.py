"""A client on the `mcp` SDK 2.x that uses all of a server's prompts, resources, templates and completions.

argv: one JSON object: `era` (legacy, or auto: the newest that the server speaks), and how the server is reached
(`wire.transport`); `prompts`: the arguments of each, by name; `completions`: references with arguments; `read`:
further URIs. Prints one JSON object: what it was declared, listed, given and read.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import trio
from mcp.client import Client
from mcp_types import PromptReference, ResourceTemplateReference
from wire import transport

OF_AN_ERA = {"resultType", "ttlMs", "cacheScope", "_meta", "nextCursor"}
"""Members that a result has in one era and not in the other, and what mcpd says of itself."""


def shown(result: Any) -> dict[str, Any]:
    """A result, as it would be in any era."""
    found: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: value for key, value in found.items() if key not in OF_AN_ERA}


async def main(job: dict[str, Any]) -> None:
    """Ask for everything, once."""
    seen: dict[str, Any] = {"prompts": {}, "read": {}, "completed": []}
    async with Client(transport(job), mode=job["era"]) as client:
        capabilities = client.server_capabilities.model_dump(by_alias=True, exclude_none=True)
        prompts, resources = shown(await client.list_prompts()), shown(await client.list_resources())
        seen["version"] = client.protocol_version
        seen["capabilities"] = sorted(capabilities)
        seen["lists"] = [prompts, resources, shown(await client.list_resource_templates())]
        for name, arguments in job["prompts"].items():
            seen["prompts"][name] = shown(await client.get_prompt(name, arguments))
        for uri in [*(each["uri"] for each in resources["resources"]), *job["read"]]:
            seen["read"][uri] = shown(await client.read_resource(uri))
        for ref, argument in job["completions"]:
            kind = PromptReference if ref["type"] == "ref/prompt" else ResourceTemplateReference
            seen["completed"].append(shown(await client.complete(kind.model_validate(ref), argument)))
    print(json.dumps(seen))


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
