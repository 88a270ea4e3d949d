"""Four tasks, each done by a model's single calls, and by a script."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from bench.tasks.stand_in import FILES, ISSUES, PAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

Call = tuple[str, dict[str, Any]]
"""`server/tool` and its arguments."""
if TYPE_CHECKING:
    Calls = Generator[Call, str, Any]
    """Yields calls, receives the text of each answer, returns the task's result."""

REPOSITORY = {"owner": "acme", "repo": "shop"}
ISSUE_PAGE = 40
"""Issues that a script reads: with the list, one call less than FastMCP's CodeMode allows would be 49."""
DIRECTORY = "/srv/logs"
FILES_AT_ONCE = 10
SHOP = "https://shop.example/p/"


@attrs.frozen(kw_only=True)
class Task:
    """One task."""

    name: str
    need: str
    """The model's search query."""
    tools: tuple[str, ...]
    """The tools that the task needs, as `server/tool`."""
    direct: Callable[[], Calls]
    """Does the task by single calls."""
    looks: tuple[Call, ...]
    """Calls whose answers a model inspects first if it does not know their shape."""
    scripts: Sequence[str]
    """Scripts, in which `JSON(x)` parses a JSON result: on surface `code` it is parsed already."""
    joined: Callable[[list[Any]], Any] = lambda found: found[0]
    """Combines the scripts' answers into one."""


# --- 1: triage -----------------------------------------------------------------------------------------------


def _triage() -> Calls:
    found = []
    for page in (1, 2):
        asked = {**REPOSITORY, "state": "all", "page": page, "per_page": 100}
        listed = json.loads((yield "github/list_issues", asked))
        for each in listed:
            told = yield "github/get_issue", {**REPOSITORY, "issue_number": each["number"]}
            found.append(json.loads(told))
    bugs = [
        each
        for each in found
        if each["state"] == "open" and any(label["name"] == "bug" for label in each["labels"])
    ]
    return [
        len(bugs),
        sum(each["comments"] for each in bugs),
        sum("Traceback" in each["body"] for each in bugs),
    ]


TRIAGE = """\
import asyncio, json
repo = {"owner": "acme", "repo": "shop"}
listed = JSON(await call("github/list_issues", {**repo, "state": "all", "page": %d, "per_page": %d}))
async def read(number):
    return JSON(await call("github/get_issue", {**repo, "issue_number": number}))
issues = await asyncio.gather(*[read(each["number"]) for each in listed])
bugs = [i for i in issues if i["state"] == "open" and any(label["name"] == "bug" for label in i["labels"])]
[len(bugs), sum(i["comments"] for i in bugs), sum("Traceback" in i["body"] for i in bugs)]
"""


# --- 2: join -------------------------------------------------------------------------------------------------

COMPANIES = {"objectType": "companies", "limit": 100, "properties": ["name", "domain", "annualrevenue"]}
ACCOUNTS = {"data_source_id": "9f8e7d6c-0000-4000-8000-000000000001", "page_size": 100}


def _join() -> Calls:
    companies: list[Any] = []
    after: dict[str, str] = {}
    while True:
        page = json.loads((yield "hubspot/hubspot-list-objects", {**COMPANIES, **after}))
        companies += page["results"]
        if "paging" not in page:
            break
        after = {"after": page["paging"]["next"]["after"]}
    domains: set[str] = set()
    cursor: dict[str, str] = {}
    while True:
        page = json.loads((yield "notion/API-query-data-source", {**ACCOUNTS, **cursor}))
        urls = [each["properties"]["Domain"]["url"] for each in page["results"]]
        domains |= {url.removeprefix("https://www.").rstrip("/") for url in urls}
        if not page["has_more"]:
            break
        cursor = {"start_cursor": page["next_cursor"]}
    properties = [each["properties"] for each in companies]
    missing = [each for each in properties if each["domain"] not in domains]
    missing.sort(key=lambda each: -int(each["annualrevenue"]))
    return [len(missing), [each["name"] for each in missing[:5]]]


JOIN = """\
import json
companies, more = [], {}
while True:
    page = JSON(await call("hubspot/hubspot-list-objects", {"objectType": "companies", "limit": 100,
        "properties": ["name", "domain", "annualrevenue"], **more}))
    companies += [each["properties"] for each in page["results"]]
    if "paging" not in page:
        break
    more = {"after": page["paging"]["next"]["after"]}
domains, more = set(), {}
while True:
    page = JSON(await call("notion/API-query-data-source",
        {"data_source_id": "9f8e7d6c-0000-4000-8000-000000000001", "page_size": 100, **more}))
    for each in page["results"]:
        domains.add(each["properties"]["Domain"]["url"].removeprefix("https://www.").rstrip("/"))
    if not page["has_more"]:
        break
    more = {"start_cursor": page["next_cursor"]}
missing = [each for each in companies if each["domain"] not in domains]
missing = sorted(missing, key=lambda each: -int(each["annualrevenue"]))
[len(missing), [each["name"] for each in missing[:5]]]
"""


# --- 3: report -----------------------------------------------------------------------------------------------


def _report() -> Calls:
    listed = re.findall(r"\[FILE\] (.+)", (yield "filesystem/list_directory", {"path": DIRECTORY}))
    paths = [f"{DIRECTORY}/{name}" for name in listed]
    rows = []
    for at in range(0, len(paths), FILES_AT_ONCE):
        some = paths[at : at + FILES_AT_ONCE]
        told = yield "filesystem/read_multiple_files", {"paths": some}
        rows += [
            [text.count(" ERROR "), max(map(int, re.findall(r"took (\d+) ms", text)))]
            for text in told.split("\n---\n")
        ]
    worst = sorted(zip(listed, rows, strict=True), key=lambda each: (-each[1][0], each[0]))
    return [[name, *row] for name, row in worst[:10]]


REPORT = """\
import asyncio, re
listed = (await call("filesystem/list_directory", {"path": "/srv/logs"}))["content"]
names = re.findall(r"\\[FILE\\] (.+)", listed)
async def row(name):
    text = (await call("filesystem/read_text_file", {"path": "/srv/logs/" + name}))["content"]
    return [name, text.count(" ERROR "), max([int(ms) for ms in re.findall(r"took (\\d+) ms", text)])]
rows = await asyncio.gather(*[row(name) for name in names])
sorted(rows, key=lambda each: (-each[1], each[0]))[:10]
"""


# --- 4: crawl ------------------------------------------------------------------------------------------------


def _crawl() -> Calls:
    seen, left, prices = {SHOP + "0"}, [SHOP + "0"], []
    while left:
        text = yield "fetch/fetch", {"url": left.pop(0)}
        if int(_one(r"In stock: (\d+)", text)):
            prices.append(float(_one(r"Price: ([\d.]+)", text)))
        new = [url for url in re.findall(r"\]\((https://shop[^)]+)\)", text) if url not in seen]
        seen.update(new)
        left += new
    return [len(seen), len(prices), min(prices), max(prices)]


def _one(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text[:200]
    return found[1]


CRAWL = """\
import asyncio, re
seen, left, prices = ["https://shop.example/p/0"], ["https://shop.example/p/0"], []
while left:
    texts = await asyncio.gather(*[call("fetch/fetch", {"url": url}) for url in left])
    left = []
    for text in texts:
        if int(re.search(r"In stock: (\\d+)", text).group(1)):
            prices.append(float(re.search(r"Price: ([\\d.]+)", text).group(1)))
        left += [url for url in re.findall(r"\\]\\((https://shop[^)]+)\\)", text) if url not in seen]
    seen += left
[len(seen), len(prices), min(prices), max(prices)]
"""


TASKS = (
    Task(
        name=f"triage of {ISSUES} issues",
        need="list issues of a GitHub repository and read an issue",
        tools=("github/list_issues", "github/get_issue"),
        direct=_triage,
        looks=(("github/get_issue", {**REPOSITORY, "issue_number": 1}),),
        scripts=[TRIAGE % (page, ISSUE_PAGE) for page in range(1, ISSUES // ISSUE_PAGE + 1)],
        joined=lambda found: [sum(column) for column in zip(*found, strict=True)],
    ),
    Task(
        name="join of two servers' lists",
        need="list HubSpot companies, query a Notion data source",
        tools=("hubspot/hubspot-list-objects", "notion/API-query-data-source"),
        direct=_join,
        looks=(
            ("hubspot/hubspot-list-objects", {**COMPANIES, "limit": 1}),
            ("notion/API-query-data-source", {**ACCOUNTS, "page_size": 1}),
        ),
        scripts=[JOIN],
    ),
    Task(
        name=f"report over {FILES} files",
        need="list a directory and read text files",
        tools=("filesystem/list_directory", "filesystem/read_text_file", "filesystem/read_multiple_files"),
        direct=_report,
        looks=(("filesystem/read_text_file", {"path": f"{DIRECTORY}/service00.log", "head": 5}),),
        scripts=[REPORT],
    ),
    Task(
        name=f"crawl of {PAGES} pages",
        need="fetch a web page",
        tools=("fetch/fetch",),
        direct=_crawl,
        looks=(("fetch/fetch", {"url": f"{SHOP}0", "max_length": 1000}),),
        scripts=[CRAWL],
    ),
)
