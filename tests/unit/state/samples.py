"""Records, briefly written."""

from collections.abc import Iterable
from typing import Any

import attrs

from daemon.catalog.loaded import VALID, Loaded, LoadedStatus, LoadedTool, SessionRecord, Source, Verdict
from daemon.facts import SelfDescription, ServerRecord
from daemon.model import Approval, Definition, Kind, Summary, Tool
from tests.unit.catalog.samples import definition as listed_of
from tests.unit.catalog.samples import tool, tool_json

CHANGED = Verdict(status=LoadedStatus.INVALID_CHANGED, reason="server git has changed it")


def server(*tools: str | Tool, name: str = "git", epoch: int = 1, **more: Any) -> ServerRecord:
    """What is known of a server, plain tools by name."""
    full = tuple(tool(name, each) if isinstance(each, str) else each for each in tools)
    since = {each.name: 90.0 for each in full}
    listed = more.pop("tools", full)
    lists = {} if listed is None else {Kind.TOOL: listed}
    given = {"fingerprint": "f" * 64, "refreshed_at": 100.0, "lists": lists, "since": since, **more}
    return ServerRecord(server=name, epoch=epoch, **given)


def definition(kind: Kind, name: str, server: str = "git", **members: object) -> Definition:
    """One usable prompt, resource, template or skill."""
    return listed_of(kind, server, name, **members)


def with_lists(record: ServerRecord, **lists: Iterable[str]) -> ServerRecord:
    """With prompts, resources and templates by these names: `with_lists(record, prompt=["review"])`."""
    named = {
        Kind(kind): tuple(definition(Kind(kind), name, record.server) for name in names)
        for kind, names in lists.items()
    }
    return with_tools(attrs.evolve(record, lists=named), record.tools)


def with_tools(record: ServerRecord, tools: tuple[Tool, ...] | None, **more: Any) -> ServerRecord:
    """With other tools, and with what else differs; None: it never listed any."""
    lists = record.definitions if tools is None else {Kind.TOOL: tools, **record.definitions}
    return attrs.evolve(record, lists=lists, **more)


def sentence(text: str, of: str = "x", at: float = 50.0) -> Summary:
    """What a model said."""
    return Summary(text=text, keywords=("git", "été", '"quoted"'), of=of, at=at)


def summed(record: ServerRecord) -> ServerRecord:
    """With a sentence about the server and one about each of its tools."""
    about = {each.schema_hash: sentence(f"does {each.name}", each.schema_hash) for each in record.tools or ()}
    return attrs.evolve(
        record,
        summary=sentence("keeps files"),
        sentences=about,
        said=SelfDescription(about="Keeps files, it says."),
    )


def approval(name: str = "read", identity: str = "f" * 64, at: float = 5.0, **more: Any) -> Approval:
    """The approval of a tool in a plain form; without a name that of a first list."""
    given = {"identity": identity, "kind": Kind.TOOL, "name": name, "at": at, **more}
    return Approval(**{"raw": tool_json(name) if name else b"", **given})


def session(key: str, *tools: str, seen_at: float = 10.0, client: str = "tester", **more: Any) -> SessionRecord:
    """A session that has loaded these tools, as `server/tool`."""
    held = dict(loading(each, **more) for each in tools)
    return SessionRecord(key=key, loaded=Loaded(held), client=client, created_at=5.0, seen_at=seen_at)


def loading(name: str, verdict: Verdict = VALID, **more: Any) -> tuple[tuple[str, str], LoadedTool]:
    """One loaded tool, `server/tool`, with its key."""
    key = tuple(name.split("/", 1))
    given = {"schema_hash": f"hash of {name}", "epoch": 1, "source": Source.MANUAL, "at": 7.0, **more}
    assert len(key) == 2
    return key, LoadedTool(key=key, verdict=verdict, **given)
