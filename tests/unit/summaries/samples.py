"""What the tests of this room share: questions, briefly written."""

import json

from daemon.summaries.prompt import Question
from tests.unit.catalog.samples import tool


def question(*names: str, overview: bool = False, server: str = "s", description: str = "") -> Question:
    """A question about tools by name, and about their server if that is wanted."""
    tools = tuple(tool(server, name, description=f"Does {name}.") for name in names)
    return Question(
        server=server,
        description=description,
        overview=tools if overview else None,
        digest="d" if overview else "",
        tools=tools,
    )


def answer(*, server: str | None = None, **tools: str) -> str:
    """An answer with a sentence for each tool."""
    about = {} if server is None else {"server": {"summary": server, "keywords": []}}
    entries = {name: {"summary": text, "keywords": []} for name, text in tools.items()}
    return json.dumps({**about, "tools": entries})
