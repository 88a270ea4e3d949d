"""A server that lists recorded tools and invents their answers: `stand_in.py KIND LIST.json SECONDS`.

The answers have the shape and size of the real servers' answers, and are the same in every run. Each takes
SECONDS, several at a time, as over a network. Lists of issues are short, as those of GitHub's current server.
It needs only the standard library: Python starts it without site-packages.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Json: TypeAlias = dict[str, Any]
    Answer: TypeAlias = Callable[[str, Json], str]

ISSUES, ROWS, FILES, PAGES = 200, 150, 30, 20
LINES = 60
"""Lines of each file."""
TEXT = """the order service returns a stale total when two carts merge after login and cache entry expires
before payment worker reads queue so customers see old price until next sync which support can reset by hand"""
WORDS = TEXT.split()
API = "https://api.github.com/repos/acme/shop"


def prose(seed: str, words: int) -> str:
    """Text with this number of words, the same for each seed, in paragraphs."""
    dice = random.Random(seed)
    said = [dice.choice(WORDS) for _ in range(words)]
    return "\n\n".join(" ".join(said[at : at + 60]) for at in range(0, words, 60))


# --- GitHub --------------------------------------------------------------------------------------------------


def issue(number: int) -> Json:
    """An issue in the form of GitHub's API."""
    dice = random.Random(number)
    login, url = f"user{dice.randrange(40)}", f"{API}/issues/{number}"
    trace = '\n\n```\nTraceback (most recent call last):\n  File "cart.py", line 81, in merge\nKeyError: 7\n```'
    return {
        "url": url,
        "repository_url": API,
        "labels_url": url + "/labels{/name}",
        "comments_url": url + "/comments",
        "events_url": url + "/events",
        "html_url": f"https://github.com/acme/shop/issues/{number}",
        "id": 1_900_000_000 + number,
        "node_id": f"I_kwDOAbCdEf5{number:08d}",
        "number": number,
        "title": prose(f"title{number}", 9).capitalize(),
        "user": {
            "login": login,
            "id": number,
            "avatar_url": f"https://avatars.githubusercontent.com/u/{number}?v=4",
        }
        | {"url": f"https://api.github.com/users/{login}", "html_url": f"https://github.com/{login}"},
        "labels": [
            {"id": at, "node_id": f"LA_{at}", "url": f"{API}/labels/{name}", "name": name, "color": "d73a4a"}
            | {"default": False, "description": f"About {name}"}
            for at, name in enumerate(dice.sample(["bug", "docs", "feature", "payments", "search"], 2))
        ],
        "state": dice.choice(["open", "open", "closed"]),
        "locked": False,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "comments": dice.randrange(12),
        "created_at": f"2026-{dice.randrange(1, 12):02d}-{dice.randrange(1, 28):02d}T09:15:00Z",
        "updated_at": f"2026-11-{dice.randrange(1, 28):02d}T17:40:00Z",
        "closed_at": None,
        "body": prose(f"body{number}", dice.randrange(60, 320)) + (trace if dice.random() < 0.4 else ""),
    }


def github(name: str, arguments: Json) -> str:
    """`list_issues` and `get_issue`."""
    if name == "get_issue":
        return json.dumps(issue(arguments["issue_number"]), indent=2)
    size = arguments.get("per_page", 30)
    first = (arguments.get("page", 1) - 1) * size
    short = ("number", "title", "state", "comments", "created_at", "updated_at")
    whole = [issue(number) for number in range(first + 1, min(first + size, ISSUES) + 1)]
    listed = [{key: each[key] for key in short} | {"user": each["user"]["login"]} for each in whole]
    return json.dumps(listed, indent=2)


# --- a CRM and a wiki ----------------------------------------------------------------------------------------


def hubspot(_name: str, arguments: Json) -> str:
    """`hubspot-list-objects`: companies."""
    size = arguments.get("limit", 100)
    first = int(arguments.get("after", 0))
    last = min(first + size, ROWS)
    results = [
        {
            "id": str(30_000 + row),
            "properties": {"createdate": "2025-03-04T10:00:00.000Z", "domain": f"company{row}.example"}
            | {"hs_lastmodifieddate": "2026-10-30T08:11:12.345Z", "hs_object_id": str(30_000 + row)}
            | {"name": f"Company {row}", "annualrevenue": str(random.Random(row).randrange(100, 9000) * 1000)},
            "createdAt": "2025-03-04T10:00:00.000Z",
            "updatedAt": "2026-10-30T08:11:12.345Z",
            "archived": False,
            "url": f"https://app.hubspot.com/contacts/4711/record/0-2/{30_000 + row}",
        }
        for row in range(first, last)
    ]
    paging = {"paging": {"next": {"after": str(last), "link": "?after=" + str(last)}}} if last < ROWS else {}
    return json.dumps({"results": results, **paging}, indent=2)


def notion(_name: str, arguments: Json) -> str:
    """`API-query-data-source`: pages for two of three companies."""
    rows = [row for row in range(ROWS) if row % 3]
    first, size = int(arguments.get("start_cursor", 0)), arguments.get("page_size", 100)
    person = {"object": "user", "id": "5d2c5a52-6f2b-4f6b-9a6d-3b7c3f1f0a11"}
    more = first + size < len(rows)
    found = {
        "object": "list",
        "results": [notion_page(row, person) for row in rows[first : first + size]],
        "next_cursor": str(first + size) if more else None,
        "has_more": more,
        "type": "page_or_data_source",
        "page_or_data_source": {},
    }
    return json.dumps(found, separators=(",", ":"))


def notion_page(row: int, person: Json) -> Json:
    """A page in the form of Notion's API, with much about each property."""
    plain = {"bold": False, "italic": False, "strikethrough": False, "underline": False, "code": False}

    def text(said: str) -> list[Json]:
        piece = {"type": "text", "text": {"content": said, "link": None}, "plain_text": said, "href": None}
        return [{**piece, "annotations": {**plain, "color": "default"}}]

    page = f"2a1b3c4d-0000-4000-8000-{row:012d}"
    return {
        "object": "page",
        "id": page,
        "created_time": "2025-06-01T07:00:00.000Z",
        "last_edited_time": "2026-11-02T16:20:00.000Z",
        "created_by": person,
        "last_edited_by": person,
        "cover": None,
        "icon": None,
        "parent": {"type": "data_source_id", "data_source_id": "9f8e7d6c-0000-4000-8000-000000000001"},
        "in_trash": False,
        "properties": {
            "Domain": {"id": "a%3Bc", "type": "url", "url": f"https://www.company{row}.example/"},
            "Owner": {"id": "b%40d", "type": "people", "people": [person]},
            "Stage": {"id": "c_e", "type": "select", "select": {"id": "1", "name": "Live", "color": "green"}},
            "Notes": {"id": "d~f", "type": "rich_text", "rich_text": text(prose(f"note{row}", 24))},
            "Renewal": {"id": "e%3Ag", "type": "date", "date": {"start": "2027-01-31", "end": None}},
            "Name": {"id": "title", "type": "title", "title": text(f"Company {row}")},
        },
        "url": f"https://www.notion.so/Company-{row}-{page.replace('-', '')}",
        "public_url": None,
    }


# --- files, pages --------------------------------------------------------------------------------------------


def log_of(path: str) -> str:
    """The log of a service."""
    dice = random.Random(path)
    return "".join(
        f"2026-11-{dice.randrange(1, 29):02d}T{dice.randrange(24):02d}:{dice.randrange(60):02d}:07Z "
        f"{dice.choice(['INFO', 'INFO', 'INFO', 'WARN', 'ERROR'])} request took {dice.randrange(3, 4000)} ms: "
        f"{' '.join(dice.choices(WORDS, k=8))}\n"
        for _ in range(LINES)
    )


def filesystem(name: str, arguments: Json) -> str:
    """`list_directory`, `read_text_file`, `read_multiple_files`."""
    match name:
        case "list_directory":
            return "\n".join(f"[FILE] service{number:02d}.log" for number in range(FILES))
        case "read_text_file":
            return log_of(arguments["path"])
        case _:
            return "\n---\n".join(f"{path}:\n{log_of(path)}\n" for path in arguments["paths"])


def fetch(_name: str, arguments: Json) -> str:
    """`fetch`: the first 5000 characters of a page of a shop, which links to two others."""
    url = arguments["url"]
    number = int(url.rpartition("/")[2] or 0)
    dice = random.Random(url)
    links = [2 * number + each for each in (1, 2) if 2 * number + each < PAGES]
    text = f"# Product {number}\n\nPrice: {dice.randrange(5, 900)}.00 EUR\n\nIn stock: {dice.randrange(40)}\n\n"
    text += "".join(f"* [Product {each}](https://shop.example/p/{each})\n" for each in links)
    text += "\n" + prose(url, dice.randrange(500, 1400))
    head = f"Contents of {url}:\n"
    if len(text) <= (limit := arguments.get("max_length", 5000)):
        return head + text
    more = f"Content truncated. Call the fetch tool with a start_index of {limit} to get more content."
    return f"{head}{text[:limit]}\n\n<error>{more}</error>"


# --- the server ----------------------------------------------------------------------------------------------

KINDS: dict[str, Answer] = {
    "github": github,
    "hubspot": hubspot,
    "notion": notion,
    "filesystem": filesystem,
    "fetch": fetch,
}
STRUCTURED = "filesystem"
"""The server with output schemas: `{"content": text}`."""


def main(kind: str, listed: str, seconds: str) -> None:
    """Serve until stdin ends."""
    tools = json.loads(Path(listed).read_bytes())["tools"]
    lock = threading.Lock()

    def send(request: Json, result: Json) -> None:
        with lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()

    def call(request: Json) -> None:
        time.sleep(float(seconds))
        params = request["params"]
        text = KINDS[kind](params["name"], params.get("arguments") or {})
        shaped = {"structuredContent": {"content": text}} if kind == STRUCTURED else {}
        send(request, {"content": [{"type": "text", "text": text}], **shaped})

    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                version, info = request["params"]["protocolVersion"], {"name": kind, "version": "1"}
                capable: Json = {"tools": {}}
                send(request, {"protocolVersion": version, "capabilities": capable, "serverInfo": info})
            case "tools/list":
                send(request, {"tools": tools})
            case "tools/call":
                threading.Thread(target=call, args=(request,), daemon=True).start()
            case _ if "id" in request:
                send(request, {})
            case _:
                pass


if __name__ == "__main__":
    main(*sys.argv[1:])
