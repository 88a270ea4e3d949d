"""Two windows of an agent, in different projects, on the same servers: checks what crosses between them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.harness import NODE, chromium, node_server, program
from tests.e2e.windows import Window
from tests.pages import Page

Json = dict[str, Any]

QUIET = ("quic", "background-networking", "component-update", "sync")
"""Background features of a browser that are off in tests."""

OWN = "own.txt"

THOUGHT: Json = {"thought": "so", "thoughtNumber": 1, "totalThoughts": 3, "nextThoughtNeeded": True}
"""The first step of a train of thoughts."""


class NamedPage(Page):
    """Shows its name."""

    def do_GET(self) -> None:
        name = self.path.strip("/")
        html = f"<!doctype html><title>of {name}</title><link rel=icon href=data:,><h1>of {name}</h1>"
        self.say(html.encode(), kind="text/html")


def playwright(directory: Path) -> Json:
    """Playwright's server on the distribution's Chromium, without its sandbox, which root cannot use."""
    config = directory / "playwright.json"
    launch = {
        "headless": True,
        "executablePath": chromium(),
        "args": ["--no-sandbox", "--disable-gpu", "--no-first-run", *(f"--disable-{each}" for each in QUIET)],
    }
    config.write_text(
        json.dumps({"browser": {"browserName": "chromium", "isolated": True, "launchOptions": launch}})
    )
    return {"command": "node", "args": [str(NODE / "@playwright" / "mcp" / "cli.js"), "--config", str(config)]}


def servers(project: Path) -> Json:
    """The real servers of a daemon that was started in one of the projects: one instance for all."""
    kept = project.parent / "memory.json"
    entries: Json = {
        "playwright": playwright(project.parent),
        "filesystem": node_server("server-filesystem", str(project.parent)),
        "git": {"command": program("mcp-server-git")},
        "thinking": node_server("server-sequential-thinking"),
        "memory": {**node_server("server-memory"), "env": {"MEMORY_FILE_PATH": str(kept)}},
        "everything": node_server("server-everything"),
    }
    return {name: {**entry, "cwd": str(project)} for name, entry in entries.items()}


def divided(servers: Json) -> Json:
    """The same servers, each with the keys that separate its clients."""
    more: Json = {
        "playwright": {"share": "session"},
        # Without a directory of its own it has none until it is told of roots: its first call comes before.
        "filesystem": {"cwd": "${workspace}", **node_server("server-filesystem", "${workspace}")},
        "git": {"cwd": "${workspace}"},
        "thinking": {"share": "session"},
        "memory": {"env": {"MEMORY_FILE_PATH": "${workspace}/memory.json"}},
        "everything": {"share": "session"},
    }
    return {name: {**entry, **more[name]} for name, entry in servers.items()}


def project(directory: Path) -> Path:
    """A repository whose only commit and whose unique file contain its name."""
    directory.mkdir()
    who = {
        f"GIT_{each}_{what}": "x@y.example" for each in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", of(directory)]):
        subprocess.run(["git", *words], cwd=directory, env={**os.environ, **who}, check=True)
    (directory / OWN).write_text(of(directory))
    return directory


def of(directory: Path) -> str:
    """The texts that belong to one project."""
    return f"of {directory.name}"


class Pair:
    """Two windows that work at the same time."""

    def __init__(self, one: Window, two: Window, site: str) -> None:
        self._one, self._two, self._site = one, two, site

    def crossed(self) -> set[str]:
        """The kinds of data of one window that the other saw or reached."""
        looks = {
            "page": self._pages,
            "browser": self._browsers,
            "file": self._files,
            "root": self._roots,
            "repository": self._repositories,
            "thought": self._thoughts,
            "memory": self._memories,
            "logging": self._logging,
        }
        return {name for name, look in looks.items() if not look()}

    def _own(self, said: list[str]) -> bool:
        """Whether each window gets only its own messages."""
        names = [of(each.directory) for each in (self._one, self._two)]
        return all(names[at] in text and names[1 - at] not in text for at, text in enumerate(said))

    def _each(self, tool: str, /, **arguments: Any) -> list[str]:
        return [window.text(tool, **arguments) for window in (self._one, self._two)]

    def _pages(self) -> bool:
        for window in (self._one, self._two):
            window.text("browser_navigate", url=f"{self._site}/{window.directory.name}")
        return self._own(self._each("browser_snapshot"))

    def _browsers(self) -> bool:
        """Whether a browser stays open when the other window closes its own."""
        self._two.text("browser_close")
        return of(self._one.directory) in self._one.text("browser_snapshot")

    def _files(self) -> bool:
        for window in (self._one, self._two):
            window.text("write_file", path="note.txt", content=of(window.directory))
        return self._own(self._each("read_text_file", path="note.txt"))

    def _roots(self) -> bool:
        """Whether a window reaches its own directory, but not the other's."""
        said = [
            window.text("read_text_file", path=str(other.directory / OWN))
            for window in (self._one, self._two)
            for other in (self._one, self._two)
        ]
        return [text.startswith("of ") for text in said] == [True, False, False, True]

    def _repositories(self) -> bool:
        return self._own(self._each("git_log", repo_path="."))

    def _thoughts(self) -> bool:
        said = self._each("sequentialthinking", **THOUGHT)
        return [json.loads(text)["thoughtHistoryLength"] for text in said] == [1, 1]

    def _memories(self) -> bool:
        for window in (self._one, self._two):
            entity = {"name": of(window.directory), "entityType": "project", "observations": []}
            window.text("create_entities", entities=[entity])
        return self._own(self._each("read_graph"))

    def _logging(self) -> bool:
        """Whether a setting of one window survives the other's."""
        return all("Started" in text for text in self._each("toggle-simulated-logging"))
