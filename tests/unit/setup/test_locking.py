"""`mcpd.lock`: lines of what servers offer, and differences from them; approving what is held."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.actors.registry import Registry
from daemon.catalog.snapshot import Catalog
from daemon.config.lock_file import LOCK, VERSION, Lock, LockedPackage, lock_in
from daemon.documents.files import DocumentError
from daemon.errors import CannotApprove
from daemon.facts import Approved, Configured, DefinitionsListed
from daemon.history.event import Event, EventKind
from daemon.model import Kind, Tool
from daemon.setup.approving import Approver
from daemon.setup.locking import (
    Content,
    Drift,
    ServersNow,
    approve,
    changed,
    drift,
    empty,
    line_of,
    offer,
    renew,
    written,
)
from tests.unit.catalog.samples import after, catalog_of, definition, listed, prompts, servers, templates, tool
from tests.unit.config.reading import config_of
from tests.waiting import beside

LOG, DIFF = (tool("git", name, description=f"Shows the {name}.") for name in ("log", "diff"))
OTHER_LOG = tool("git", "log", description="Deletes the log.")
PACKAGE = {"mcp-git": LockedPackage(version="1.2", hashes=("sha256:a", "sha256:b"))}
GIT: dict[str, Any] = {"command": "x", "trust": "changes"}
IDENTITY = config_of({"mcpServers": {"git": GIT}}).mcp_servers["git"].identity


def of(*tools: Tool, lock: Content | None = None, **entry: Any) -> Catalog:
    """The catalog of a server that lists these tools, beside a lock."""
    catalog = after(catalog_of({"mcpServers": {"git": {**GIT, **entry}}}), [Approved()])
    if lock is not None:
        config = config_of({"mcpServers": {"git": {**GIT, **entry}}})
        config = config.__class__(mcp_servers=config.mcp_servers, lock=lock_in(json.dumps(lock).encode()))
        catalog = after(catalog, [Configured(config=config, now=0.0)])
    return after(catalog, [listed("git", *tools), prompts("git", "review"), templates("git", "a://{b}")])


def now(catalog: Catalog, packages: dict[str, LockedPackage] = PACKAGE) -> ServersNow:
    return ServersNow(catalog.config.mcp_servers, catalog.servers, {"git": packages})


def locked(*tools: Tool) -> Content:
    """A lock of a server that offers these tools."""
    content = empty()
    offer(content, now(of(*tools)))
    return content


def differences(
    content: Content, catalog: Catalog, packages: dict[str, LockedPackage] = PACKAGE
) -> list[Drift]:
    lock = lock_in(written(content).encode())
    assert not lock.problem
    return [*drift(lock, now(catalog, packages), are_all=True)]


# --- what is written --------------------------------------------------------------------------------------


def test_the_file_is_sorted_and_has_a_line_for_each_definition_and_package() -> None:
    text, content = written(locked(LOG, DIFF)), empty()
    assert text == written(locked(DIFF, LOG))
    # An approval writes the same line.
    approve(content, [LOG], {"git": IDENTITY})
    assert content["servers"]["git"]["tools"]["log"] == json.loads(text)["servers"]["git"]["tools"]["log"]
    lines = text.splitlines()
    assert [line.split(":")[0].strip() for line in lines if "hash" in line] == [
        '"mcp-git"', '"review"', '"a', '"diff"', '"log"',
    ]  # fmt: skip
    package = {"version": "1.2", "hashes": ["sha256:a", "sha256:b"]}
    assert json.loads(text)["servers"]["git"]["packages"] == {"mcp-git": package}
    assert (text.isascii(), text[-2:]) == (True, "}\n")


def test_what_varies_from_start_to_start_changes_no_byte() -> None:
    texts = ("Has alpha, beta of 12 since 2026-01-02.", "Has beta, alpha of 9 since 2027-05-30.")
    one, other = (locked(tool("git", "log", description=text)) for text in texts)
    assert written(one) == written(other)
    assert one["servers"]["git"]["tools"]["log"]["says"] == "Has alpha"


def test_a_skill_has_a_line_and_another_digest_is_a_difference() -> None:
    front = {"name": "pay", "description": "Pays back."}

    def with_digest(digest: str) -> Catalog:
        files = [{"uri": "skill://pay/SKILL.md", "digest": f"sha256:{digest}"}]
        pay = definition(Kind.SKILL, "git", "skill://pay/SKILL.md", frontmatter=front, resources=files)
        return after(
            of(LOG), [DefinitionsListed(server="git", incarnation=1, kind=Kind.SKILL, definitions=(pay,))]
        )

    content = empty()
    offer(content, now(with_digest("a1" * 32)))
    assert content["servers"]["git"]["skills"]["skill://pay/SKILL.md"]["says"] == "Pays back."
    assert not differences(content, with_digest("a1" * 32))
    (found,) = differences(content, with_digest("b2" * 32))
    assert (found.name, found.change) == ("skill:skill://pay/SKILL.md", {"members": ["resources"]})


def test_members_that_mcpd_does_not_know_stay() -> None:
    content = locked(LOG)
    for place in (content, content["servers"]["git"], content["servers"]["git"]["tools"]["log"]):
        place["mine"], place["blank"] = {"x": [1, {"y": None}], "empty": {}}, {}
    before = written(content)
    offer(content, now(of(LOG)))
    assert written(content) == before
    offer(content, now(of(OTHER_LOG)))
    assert content["servers"]["git"]["tools"]["log"]["mine"] == content["mine"]
    assert content["servers"]["git"]["tools"]["log"]["hash"] == line_of(OTHER_LOG)["hash"]


def test_what_is_gone_goes_and_what_is_held_stays_as_it_was() -> None:
    content = locked(LOG, DIFF)
    before = json.loads(json.dumps(content))
    catalog = of(OTHER_LOG, lock=content)
    assert list(catalog.servers["git"].tool_list.held) == ["log"]
    offer(content, now(catalog))
    tools = content["servers"]["git"]["tools"]
    assert tools == {"log": before["servers"]["git"]["tools"]["log"]}
    offer(content, now(catalog), approve=True)
    assert content["servers"]["git"]["tools"]["log"]["hash"] == line_of(OTHER_LOG)["hash"]


def test_an_edited_entry_is_not_written_before_somebody_agrees() -> None:
    content = locked(LOG)
    before = written(content)
    catalog = of(LOG, lock=content, args=["--other"])
    offer(content, now(catalog))
    assert written(content) == before
    offer(content, now(catalog), approve=True)
    assert content["servers"]["git"]["identity"] == catalog.config.mcp_servers["git"].identity != IDENTITY
    assert list(content["servers"]["git"]["tools"]) == ["log"]
    trusted = locked(LOG)
    offer(trusted, now(of(LOG, lock=trusted, args=["--other"], trust="all")))
    assert trusted == content


def test_a_failed_lookup_leaves_the_hashes_of_the_same_version_alone_and_what_is_unpinned_says_so() -> None:
    content = locked(LOG)
    offer(content, now(of(LOG), {"mcp-git": LockedPackage(version="1.2")}))
    assert content == locked(LOG)
    for package, line in (
        (LockedPackage(version="1.3"), {"version": "1.3"}),
        (LockedPackage(version="1.3", hashes=("c",)), {"version": "1.3", "hashes": ("c",)}),
        (LockedPackage(version="1.3", hashes=("c", "d")), {"version": "1.3", "hashes": ("c", "d")}),
        (LockedPackage(pinned=False), {"pinned": False}),
    ):
        offer(content, now(of(LOG), {"mcp-git": package}))
        assert content["servers"]["git"]["packages"] == {"mcp-git": line}
    offer(content, now(of(LOG), {}))
    assert "packages" not in content["servers"]["git"]


def test_a_server_that_is_no_longer_configured_is_removed_and_a_renamed_one_is_not() -> None:
    content = locked(LOG)
    content["servers"]["other"] = {"identity": "o"}
    hub = config_of({"mcpServers": {"hub": GIT, "new": {"command": "y"}}}).mcp_servers
    assert renew(content, hub) == ["other"]
    assert content["servers"] == {"hub": locked(LOG)["servers"]["git"]}
    assert renew(content, config_of({"mcpServers": {"twin": GIT, "hub": GIT}}).mcp_servers) == []
    assert list(content["servers"]) == ["hub"]


# --- differences ------------------------------------------------------------------------------------------


def schema(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def test_each_difference_is_found() -> None:
    old = tool("git", "log", inputSchema=schema(a={"type": "string"}, b={"type": "string"}))
    new = tool("git", "log", inputSchema=schema(b={"type": "number"}, c={"type": "string"}))
    content = locked(old, DIFF)
    assert differences(content, of(old, DIFF)) == []
    catalog = of(new, tool("git", "push"), lock=content)
    change = {"argumentsWent": ["a"], "argumentsCame": ["c"], "argumentsChanged": ["b"]}
    assert differences(content, catalog) == [
        Drift(server="git", what="gone", name="diff"),
        Drift(server="git", what="changed", name="log", change=change),
        Drift(server="git", what="new", name="push"),
    ]
    lock = lock_in(written(content).encode())
    nothing = ServersNow({}, {}, {})
    assert [*drift(lock, nothing, are_all=True)] == [Drift(server="git", what="gone")]
    assert [*drift(lock, nothing, are_all=False)] == []
    assert [*drift(Lock(), now(catalog), are_all=True)] == [Drift(server="git", what="new")]


def test_an_edited_entry_and_another_package_are_differences() -> None:
    content = locked(LOG)
    assert differences(content, of(LOG, args=["--other"])) == [Drift(server="git", what="edited")]

    def of_package(package: LockedPackage | None) -> list[Any]:
        found = differences(content, of(LOG), {} if package is None else {"mcp-git": package})
        assert all((each.what, each.name) == ("changed", "package mcp-git") for each in found)
        return [each.change["members"] for each in found]

    assert of_package(LockedPackage(version="1.3")) == [["version"]]
    assert of_package(LockedPackage(version="1.2", hashes=("sha256:a",))) == [["hashes"]]
    assert of_package(LockedPackage(pinned=False)) == [["version"]]
    assert of_package(None) == [["version"]]
    assert of_package(LockedPackage(version="1.2")) == []


# --- the file ---------------------------------------------------------------------------------------------


def of_server(**members: object) -> bytes:
    return json.dumps({"lockfileVersion": VERSION, "servers": {"git": {"identity": "x", **members}}}).encode()


BAD: dict[str, bytes] = {
    "empty": b"",
    "an object": b"{}",
    "a list": b"[]",
    "truncated": written(locked(LOG)).encode()[:-40],
    "a later version": b'{"lockfileVersion": 2, "servers": {}}',
    "an earlier version": b'{"lockfileVersion": 0, "servers": {}}',
    "not UTF-8": b'{"lockfileVersion": 1, "servers": {}, "x": "\xff"}',
    "UTF-16": written(empty()).encode("utf-16"),
    "conflict": b"<<<<<<< ours\n" + written(empty()).encode(),
    "deep": b'{"lockfileVersion": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "large": b'{"lockfileVersion": 1, "x": "' + b"x" * (17 << 20) + b'"}',
    "no identity": b'{"lockfileVersion": 1, "servers": {"git": {}}}',
    "servers as a list": b'{"lockfileVersion": 1, "servers": []}',
    "a tool as a text": of_server(tools={"log": "h"}),
    "no hash": of_server(tools={"log": {}}),
    "hash as a number": of_server(tools={"log": {"hash": 1}}),
    "parts as a list": of_server(prompts={"log": {"hash": "h", "parts": ["a"]}}),
    "a package as a text": of_server(packages={"p": "1"}),
    "hashes as a text": of_server(packages={"p": {"hashes": "sha256:a"}}),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_is_no_lock_has_a_problem_and_no_content(content: bytes) -> None:
    lock = lock_in(content)
    assert lock.problem
    assert not lock.servers


def test_every_depth_is_read_or_refused(tmp_path: Path) -> None:
    depths = (10, 300, 900, 980, 1_000, 1_100, 5_000)
    for unknown in (*("[" * depth + "]" * depth for depth in depths), "1" * 5_000):
        text = f'{{"lockfileVersion": {VERSION}, "servers": {{}}, "x": {unknown}}}'
        path = tmp_path / LOCK
        path.write_text(text)
        try:
            changed(path, lambda content: offer(content, now(of(LOG))))
        except DocumentError:
            assert path.read_text() == text
        else:
            assert not lock_in(path.read_bytes()).problem


def test_a_lock_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / LOCK

    def fill(content: Content) -> None:
        content["x"] = "x" * (17 << 20)

    with pytest.raises(DocumentError, match="16 MiB"):
        changed(path, fill)
    assert not path.exists()
    assert changed(path, lambda _content: None) == (True, Lock())
    assert changed(path, lambda _content: None) == (False, lock_in(path.read_bytes()))


COMMITS, MAIL = tool("a", "log"), tool("b", "send")


async def test_before_the_store_was_read_nothing_is_approved_and_no_other_server_begins_anew(
    tmp_path: Path,
) -> None:
    registry = Registry(config_of({"trust": "changes", "mcpServers": servers("a", "b")}), wall=lambda: 5.0)
    events: list[Event] = []
    approver = Approver(registry=registry, note=events.append, wall=lambda: 5.0, directory=tmp_path)
    async with beside(registry.run):
        for fact in (listed("a", COMMITS), listed("b", MAIL)):
            registry.tell(fact)
        await registry.settle()
        with pytest.raises(CannotApprove, match=r"before mcpd has read the store.*mcpd status"):
            await approver.approve([COMMITS], "olga")
        assert registry.catalog.value.held(("b", "send"))
        assert not events
        registry.tell(Approved())
        registry.tell(listed("a", tool("a", "log", description="Deletes commits.")))
        await registry.settle()
        held = registry.catalog.value.held(("a", "log"))
        assert held is not None
        assert await approver.approve([held.definition], "olga") == [held.definition]
        assert registry.catalog.value.held(("a", "log")) is None
        assert [event.kind for event in events] == [EventKind.APPROVED]
