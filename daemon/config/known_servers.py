"""Servers that are known to keep something for their client or to need limits, and what their entries lack.

`mcpd up`, `import` and `add` write what is known into the entries that they make. An entry that is there is
left alone: `mcpd check` and `mcpd doctor` tell what it does not say; a `share` that is written is what its
author wants.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.command_lines import image_of, packages_of, program_of, started
from daemon.config.model import WRITTEN, Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daemon.config.model import Server


@attrs.frozen(kw_only=True)
class Isolation:
    """What a second instance needs so as not to meet the first."""

    option: str
    """The argument to add."""
    unless: frozenset[str]
    """Arguments and variables that say where its files are, or whose browser it is."""
    why: str
    """What goes wrong without it, after the server's name."""


@attrs.frozen(kw_only=True)
class KnownServer:
    """A server of which is known what it keeps."""

    names: frozenset[str]
    """Its packages, images and modules, in lower case, with - for _ and without versions."""
    programs: frozenset[str] = frozenset()
    """What its programs are called where their package is not; a package of that name is another one."""
    why: str
    """What goes wrong if all clients share one, or call it at the same time, after the server's name."""
    source: str
    """Where that was seen."""
    share: Share = Share.ALL
    """Who can share an instance of it."""
    workspace: tuple[str, ...] = ()
    """The arguments that give it the directory of its clients, if it takes one."""
    only_with: frozenset[str] = frozenset()
    """The arguments of which one must be there for it to be bound to a directory; empty if it always is."""
    apart: Isolation | None = None
    """What keeps several instances on one machine apart."""
    in_flight: int | None = None
    """The most calls that it bears at the same time."""


@attrs.frozen(kw_only=True)
class Advice:
    """What an entry of a known server should say, and does not."""

    key: str
    """Where: `share`, `args` or `limits.inFlight`."""
    value: Share | int | tuple[str, ...]
    """What to write there; of `args`, what to add."""
    why: str
    """What goes wrong otherwise, after the server's name."""
    in_container: bool = False
    """Whether it runs in a container, which sees a directory only where one is mounted."""

    @property
    def written(self) -> str:
        """What was written into an entry that was made, why, and how to undo it; after the server's name."""
        match self.value:
            case Share() as share:
                said, undo = f'"share": "{share}"', 'write "all"'
            case int(most):
                said, undo = f'"limits": {{"inFlight": {most}}}', "remove it"
            case words:
                said, undo = f"{' '.join(words)} in args", "remove it"
        return f"{self.why}: {said} is written; to undo that, {undo} in its entry"


_PROFILE = (
    "keeps its browser's profile in one directory, and a second instance that finds it in use opens no page"
)

KNOWN = (
    KnownServer(
        names=frozenset({"@playwright/mcp", "mcr.microsoft.com/playwright/mcp", "mcp/playwright"}),
        programs=frozenset({"playwright-mcp", "mcp-server-playwright"}),
        share=Share.SESSION,
        why="has one browser: clients that share it read, leave and close each other's pages",
        source="two agents on one server (0.0.83); its README on concurrent clients and --isolated",
        apart=Isolation(
            option="--isolated",
            unless=frozenset(
                {"--isolated", "--user-data-dir", "--cdp-endpoint", "--extension", "--endpoint", "--config"}
                | {"PLAYWRIGHT_MCP_ISOLATED", "PLAYWRIGHT_MCP_USER_DATA_DIR", "PLAYWRIGHT_MCP_CDP_ENDPOINT"}
                | {"PLAYWRIGHT_MCP_EXTENSION", "PLAYWRIGHT_MCP_CONFIG"}
            ),
            why=_PROFILE,
        ),
    ),
    KnownServer(
        names=frozenset({"@executeautomation/playwright-mcp-server"}),
        programs=frozenset({"playwright-mcp-server"}),
        share=Share.SESSION,
        why="has one browser with one page: what one client opens takes the place of what another looks at",
        source="`browser` and `page` are variables of the module (1.0.12, toolHandler.js)",
    ),
    KnownServer(
        names=frozenset({"chrome-devtools-mcp"}),
        share=Share.SESSION,
        why="has one browser with one selected page: what one client selects, the others work on",
        source="the selected page is one for the process; BrowserManager.js names --isolated (1.11.0)",
        apart=Isolation(
            option="--isolated",
            unless=frozenset(
                {"--isolated", "--user-data-dir", "--browser-url", "-u", "--ws-endpoint", "-w"}
                | {"--auto-connect", "--userDataDir", "--browserUrl", "--wsEndpoint", "--autoConnect"}
            ),
            why=_PROFILE,
        ),
    ),
    KnownServer(
        names=frozenset({"@modelcontextprotocol/server-puppeteer", "mcp/puppeteer"}),
        programs=frozenset({"mcp-server-puppeteer"}),
        share=Share.SESSION,
        why="has one browser with one page: what one client opens takes the place of what another looks at",
        source="`browser` and `page` are variables of the module (2025.5.12, index.js)",
    ),
    KnownServer(
        names=frozenset({"@angiejones/mcp-selenium"}),
        programs=frozenset({"mcp-selenium"}),
        share=Share.SESSION,
        why="works on the browser that was started last, whoever started it",
        source="`state.currentSession` is one for the process (0.2.3, server.js)",
    ),
    KnownServer(
        # A second process ends the first: there is no way to give clients instances.
        names=frozenset({"@browsermcp/mcp"}),
        programs=frozenset({"mcp-server-browsermcp"}),
        why="works in the one browser that its extension is in, and kills whoever listens on its port",
        source="createWebSocketServer kills the process on port 9009 (0.1.3, index.js)",
    ),
    KnownServer(
        names=frozenset({"@modelcontextprotocol/server-filesystem", "mcp/filesystem"}),
        programs=frozenset({"mcp-server-filesystem"}),
        share=Share.WORKSPACE,
        workspace=(WRITTEN,),
        why=(
            "works in the directories of its arguments, or in the roots of the one client that tells it any:"
            " other clients' files are refused, or are written into that client's project"
        ),
        source="roots replace the allowed directories (2026.8.31, index.js); seen with two agents",
    ),
    KnownServer(
        # Otherwise each call names its repository, and nothing is kept.
        names=frozenset({"mcp-server-git", "mcp/git"}),
        share=Share.WORKSPACE,
        workspace=("--repository", WRITTEN),
        only_with=frozenset({"--repository", "-r"}),
        why="is confined to the repository of its arguments, and refuses those of other clients",
        source="validate_repo_path (2026.10.19, server.py)",
    ),
    KnownServer(
        names=frozenset({"@cyanheads/git-mcp-server"}),
        programs=frozenset({"git-mcp-server"}),
        share=Share.SESSION,
        why="keeps a working directory, which one client sets for all: the others' calls go to its repository",
        source="git_set_working_dir, kept for the session of its transport (2.15.3)",
    ),
    KnownServer(
        names=frozenset({"serena-agent", "ghcr.io/oraios/serena"}),
        programs=frozenset({"serena", "serena-mcp-server"}),
        share=Share.WORKSPACE,
        workspace=("--project", WRITTEN),
        why="has one active project: what one client activates, the others read and write",
        source="a file was written into the other window's project; `_active_project` (2.1.0, agent.py)",
    ),
    KnownServer(
        names=frozenset({"code-index-mcp"}),
        share=Share.WORKSPACE,
        workspace=("--project-path", WRITTEN),
        why="has one project: set_project_path of one client moves all others",
        source="seen with two clients; set_project_path (2.17.1, server.py)",
    ),
    KnownServer(
        names=frozenset({"@modelcontextprotocol/server-sequential-thinking", "mcp/sequentialthinking"}),
        programs=frozenset({"mcp-server-sequential-thinking"}),
        share=Share.SESSION,
        why="keeps one history of thoughts: two clients' trains of thought become one",
        source="`thoughtHistory` is one for the process (2026.8.31, lib.js)",
    ),
    KnownServer(
        names=frozenset({"@modelcontextprotocol/server-memory", "mcp/memory"}),
        programs=frozenset({"mcp-server-memory"}),
        why="reads and rewrites its file for each call: calls at the same time lose each other's changes",
        source="loadGraph and saveGraph without a lock (2026.8.31, index.js)",
        in_flight=1,
    ),
    KnownServer(
        names=frozenset({"mcp-server-sqlite", "mcp/sqlite"}),
        share=Share.SESSION,
        why="keeps one memo of insights in memory: what one client finds out, the others read as theirs",
        source="`insights` is one for the process (2025.4.25, server.py)",
    ),
    KnownServer(
        names=frozenset({"mcp-server-motherduck"}),
        why="answers one call with the rows of another that runs at the same time",
        source="42 of 240 answers at four calls in parallel, none one by one: one DuckDB connection for all",
        in_flight=1,
    ),
    KnownServer(
        names=frozenset({"@wonderwhy-er/desktop-commander", "mcp/desktop-commander"}),
        programs=frozenset({"desktop-commander"}),
        share=Share.SESSION,
        why="keeps terminals and searches, which every client lists, reads and ends",
        source="`sessions` of terminal-manager.js and search-manager.js are one for the process (0.2.52)",
    ),
    KnownServer(
        names=frozenset({"jupyter-mcp-server"}),
        programs=frozenset({"jupyter-mcp"}),
        share=Share.SESSION,
        why="has one current notebook: what one client opens, the others' cells go into",
        source="`_current_notebook` (2.2.4, notebook_manager.py)",
    ),
    KnownServer(
        names=frozenset({"@modelcontextprotocol/server-everything", "mcp/everything"}),
        programs=frozenset({"mcp-server-everything"}),
        share=Share.SESSION,
        why="lists other tools for clients that can do more, and has one log level and one set of roots",
        source="13 to 17 tools, by the client's capabilities (2026.8.31)",
    ),
)
"""What was seen to go wrong, and what was seen to help."""

ISOLATING = frozenset(row.apart.option for row in KNOWN if row.apart is not None)
"""Arguments that mcpd adds itself, so that a server with them is the one that a client has without."""

_VERSION = re.compile(r"(?<=.)(?:@|==)[^/@]*$|\[[^\]]*\].*$")
_TAG = re.compile(r"(?::[^/@]*)?(?:@.*)?$")
_DEFAULT_REGISTRY = "docker.io/"
_SCRIPT_RUNNERS = frozenset({"bun", "deno", "node"})
_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")


def advice(server: Server) -> tuple[Advice, ...]:
    """What an entry should say and does not; nothing of a server that is not known, or is switched off."""
    if not server.enabled or not server.command:
        return ()
    for words in started((server.command, *server.args)):
        if (row := _row(words)) is not None:
            return tuple(_advice(server, row, words))
    return ()


def completed(entry: Mapping[str, Any], server: Server) -> tuple[dict[str, Any], tuple[Advice, ...]]:
    """An entry that is being made, with what is known of its server, and what that is.

    A server that is bound to a directory keeps its arguments, which say what it may reach, and is given an
    instance for each directory that clients work in.

    Args:
        entry: the entry.
        server: the same, as mcpd reads it.
    """
    made, done = dict(entry), list[Advice]()
    while found := advice(server):
        each = found[0]
        match each.value:
            case int(most):
                made["limits"] = {**made.get("limits", {}), "inFlight": most}
                server = attrs.evolve(server, limits=attrs.evolve(server.limits, in_flight=most))
            case tuple(words) if WRITTEN not in words:
                made["args"] = [*made.get("args", []), *words]
                server = attrs.evolve(server, args=(*server.args, *words))
            case other:
                share = other if isinstance(other, Share) else Share.WORKSPACE
                each = attrs.evolve(each, key="share", value=share)
                made["share"] = str(share)
                server = attrs.evolve(server, share=share)
        done.append(each)
    return made, tuple(done)


def known(server: Server) -> KnownServer | None:
    """What is known of the server that an entry starts; None if nothing is."""
    rows = map(_row, started((server.command or "", *server.args)))
    return next((row for row in rows if row is not None), None)


def _advice(server: Server, row: KnownServer, words: Sequence[str]) -> Iterator[Advice]:
    in_container = image_of(words) is not None
    share = server.shared_by
    bound = not row.only_with or any(_names(word, row.only_with) for word in server.args)
    if server.share is None and share is Share.ALL and row.share is not Share.ALL and bound:
        share = row.share
        if row.workspace:
            yield Advice(key="args", value=row.workspace, why=row.why, in_container=in_container)
        else:
            yield Advice(key="share", value=row.share, why=row.why)
    told = {*server.args, *server.env}
    apart = None if in_container or share is Share.ALL else row.apart
    if apart is not None and not any(_names(word, apart.unless) for word in told):
        yield Advice(key="args", value=(apart.option,), why=apart.why)
    if row.in_flight is not None and server.limits.in_flight > row.in_flight:
        yield Advice(key="limits.inFlight", value=row.in_flight, why=row.why)


def _names(word: str, options: frozenset[str]) -> bool:
    return word.partition("=")[0] in options


def _row(words: Sequence[str]) -> KnownServer | None:
    for name, is_program in _names_of(words):
        plain = name.lower().replace("_", "-")
        for row in KNOWN:
            in_package = any(f"node_modules/{package}/" in name for package in row.names)
            if plain in row.names or in_package or (is_program and plain in row.programs):
                return row
    return None


def _names_of(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The names of what a command starts, without a version, each with whether it is a program's.

    Not of its arguments, which may name anything.
    """
    if (image := image_of(words)) is not None:
        yield _TAG.sub("", image.name.removeprefix(_DEFAULT_REGISTRY)), False
    elif packages := packages_of(words):
        yield from ((_VERSION.sub("", name), False) for name in packages)
        yield from ((name, True) for name in program_of(words))
    elif words[0] in _SCRIPT_RUNNERS:
        yield from [(word, False) for word in words[1:] if not word.startswith("-")][:1]
    elif _PYTHON.fullmatch(words[0]):
        yield from ((module.partition(".")[0], True) for flag, module in pairwise(words) if flag == "-m")
    else:
        yield words[0], True
