"""Turns the words of `mcpd add` into an entry: a command, a URL or a package."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.command_lines import Package, is_elsewhere, packages_in, started, unpinned
from daemon.config.jsonc import decode
from daemon.config.lock_file import LockedPackage
from daemon.config.names import SERVER_NAME, slug
from daemon.config.redaction import names_credential
from daemon.config.translation import SERVERS, Translated, normalized
from daemon.errors import McpdError
from daemon.host.paths import home
from daemon.safety.redact import PLACEHOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.config.config_model import Server

    Newest = Callable[[Package], str | None]
    """Looks up a package's newest version; returns None if no program can."""


LOOKUP_SECONDS = 30.0
"""Seconds for a lookup: over a slow line, npm needs some for its first answer."""

_NUMBER = r"(\d+(?:\.\d+)+[\w.+!-]*)"
_BARE = re.compile(rf"^{_NUMBER}\s*$", re.MULTILINE)
_REQUIRED = re.compile(rf"^[\w.-]+=={_NUMBER}", re.MULTILINE)
_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})\b")
_HASH = re.compile(r"\bsha\d{3}[-:][\w+/]+=*")
_IN_PARENTHESES = re.compile(rf"^[\w.-]+ \({_NUMBER}\)", re.MULTILINE)


def newest(
    package: Package, environ: Mapping[str, str], directory: Path, deadline: float = math.inf
) -> str | None:
    """A package's newest version, or a pulled image's digest; None if none is found by `deadline`."""
    for words, given, pattern in _ways(package, environ):
        seconds = min(LOOKUP_SECONDS, deadline - time.monotonic())
        printed = _printed_by(words, given, environ, directory, seconds) if seconds > 0 else ""
        if (found := pattern.search(printed)) is not None:
            return found[1]
    return None


def _printed_by(
    words: Sequence[str],
    given: str,
    environ: Mapping[str, str],
    directory: Path,
    seconds: float = LOOKUP_SECONDS,
) -> str:
    try:
        done = subprocess.run(
            words,
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(environ),
            cwd=directory,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout


# uv resolves, and neither installs nor builds anything.
_RESOLVE = ("pip", "compile", "--no-deps", "--no-build", "--no-header", "--no-annotate", "--quiet", "-")


def _ways(package: Package, environ: Mapping[str, str]) -> Iterator[tuple[list[str], str, re.Pattern[str]]]:
    """Commands that print a package's version, their stdin, and a pattern for the version."""
    path = environ.get("PATH")
    if package.source == "npm":
        if npm := shutil.which("npm", path=path):
            yield [npm, "view", package.name, "version"], "", _BARE
        return
    if package.source != "pypi":
        inspect = ["image", "inspect", "--format", "{{json .RepoDigests}}", package.written]
        yield [shutil.which(package.source, path=path) or package.source, *inspect], "", _DIGEST
        return
    if uv := shutil.which("uv", path=path):
        yield [uv, *_RESOLVE], package.name, _REQUIRED
    for python in (sys.executable, shutil.which("python3", path=path)):
        if python:
            yield [python, "-m", "pip", "index", "versions", package.name], "", _IN_PARENTHESES


def packages_of(server: Server, environ: Mapping[str, str]) -> dict[str, LockedPackage]:
    """The packages in a server's command by name, with the hashes that package managers look up."""
    environ, found = {**environ, **server.env}, dict[str, LockedPackage]()
    for words in started((server.written.command or "", *server.written.args)):
        for each in packages_in(words):
            known = hashes(each, environ) if each.version and not is_elsewhere(each, words) else ()
            found[each.name] = LockedPackage(pinned=bool(each.version), version=each.version, hashes=known)
    return found


def hashes(package: Package, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The hashes of a package's version, looked up by its package manager here; a digest is its own hash."""
    name, version, path = package.name, package.version, environ.get("PATH")
    words, given = [shutil.which("npm", path=path) or "npm", "view", f"{name}@{version}", "dist.integrity"], ""
    if package.source == "pypi":
        words = [shutil.which("uv", path=path) or "uv", *_RESOLVE, "--generate-hashes"]
        given = f"{name}=={version}"
    elif package.source != "npm":
        return (version,)
    return tuple(sorted({*_HASH.findall(_printed_by(words, given, environ, home(environ)))}))


_REPORT = "install --dry-run --ignore-installed --no-deps --only-binary=:all: --quiet --report -"
_LABELS = (
    r"change ?log|changes|what.?s new|release ?notes|history|repository|source[ \w]*|home.?page|websiteurl"
)
_ADDRESS = r'"{}(?:, |": *"|": *{{[^}}]*"url": *")(?:git\+)?(https?://[!#-?A-\[\]-~]{{1,300}})"'


def changes(pinned: str, environ: Mapping[str, str]) -> str:
    """The web address of a pinned package's changes, as npm, pip or uv gives it; empty without one."""
    ways = [["npm", "view", pinned, "--json", "repository", "homepage"]]
    if "==" in pinned:
        report, uv = [*_REPORT.split(), pinned], shutil.which("uv", path=environ.get("PATH"))
        # An environment that uv has made has no pip, which uv then fetches.
        ways = [[sys.executable, "-m", "pip", *report], *([[uv, "tool", "run", "pip", *report]] if uv else [])]
    told = (_printed_by(words, "", environ, home(environ)) for words in ways if not _DIGEST.search(pinned))
    return web_address(next(filter(None, told), ""))


def web_address(told: str) -> str:
    """The web address in JSON from outside whose label fits best; empty without one."""
    found = (re.search(_ADDRESS.format(each), told, re.IGNORECASE | re.ASCII) for each in _LABELS.split("|"))
    return next((each[1].removesuffix(".git") for each in found if each), "")


_URL = re.compile(r"(?:https?|wss?|unix)://\S+|/\S+")
_PACKAGE = re.compile(r"(?P<index>npm|pypi):(?P<package>\S+)")
_FILLING = re.compile(r"^(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-mcp|-server)$")
_VERSION = re.compile(r"(?<=.)(?:@|==|\[|:[^/]*$).*")


class WordsError(McpdError, ValueError):
    """The words name no server; the text says what to type."""


@attrs.frozen(kw_only=True)
class WantedServer:
    """A server to add."""

    name: str
    entry: dict[str, Any] = attrs.field(repr=False)
    pinned: Mapping[str, str] = attrs.field(factory=dict)
    """Packages as the former arguments had them, each with its new version."""
    loose: tuple[str, ...] = ()
    """Packages whose version lookup failed."""
    notes: tuple[str, ...] = ()
    """Remarks for the user, a line each."""
    kept: tuple[tuple[str, str], ...] = ()
    """Packages that keep their version, the newest or a newer one, each with the version that was found."""
    bounds: tuple[int, ...] = ()
    """The places in `args` of words that hold another package in a range of versions, as `--with mcp<2`."""


def wanted(words: Sequence[str], command: Sequence[str], read: Callable[[], str] = str) -> WantedServer:
    """Parse NAME and a command, NAME URL, [NAME] npm:PACKAGE or [NAME] -. Raises WordsError, ConfigError."""
    if command:
        if len(words) != 1:
            raise WordsError("write one name before --, as in `mcpd add time -- uvx mcp-server-time`")
        return WantedServer(name=named(words[0]), entry=_of_command(command))
    if len(words) > 2:  # noqa: PLR2004 - a name, and what it names
        raise WordsError(f"a command comes after --: `mcpd add {words[0]} -- {' '.join(words[1:])}`")
    if (target := words[-1] if words else "") == "-":
        return _pasted(read(), words[:-1])
    if (found := _PACKAGE.fullmatch(target)) is not None:
        package = found["package"]
        runner = ("npx", "-y") if found["index"] == "npm" else ("uvx",)
        name = words[0] if len(words) > 1 else short_name(package)
        return WantedServer(name=named(name), entry=_of_command((*runner, package)))
    if len(words) == 1 and _URL.fullmatch(target):
        raise WordsError(f"give it a name, too: `mcpd add {name_at(target)} {target}`")
    if len(words) == 1:
        raise WordsError(f"say what '{target}' is: a command after --, a URL, npm:PACKAGE or pypi:PACKAGE")
    if not words:
        raise WordsError("write a name and a command after --, a URL, a package, registry:SERVER or a bundle")
    if not _URL.fullmatch(target):
        raise WordsError(
            f"'{target}' is not a url, package or bundle, nor registry:SERVER; a command follows --;"
            f" JSON of a file is read by `mcpd add {words[0]} - < FILE`"
        )
    return WantedServer(name=named(words[0]), entry={"url": target})


_REACHES = re.compile(r"(?<!\$)\$?\{(?:run|keyring|file|credential):(?!-)")
"""Matches references that no README's snippet may hold: they run a user's programs or read a user's files."""

_FENCED = re.compile(r"```\w*[^\S\n]*\n(.*?)(?:\n\s*```|\Z)", re.DOTALL)
_IN_ENTRY = re.compile(r'"(?:command|url)"\s*:')

_USERS = ("sandbox", "sandboxEnabled", "trust")
"""Keys of an entry that a README must not set."""


def _pasted(text: str, names: Sequence[str]) -> WantedServer:
    # READMEs show members without their braces, and fence their JSON, also between other text.
    fenced = _FENCED.findall(text)
    text = next((each for each in fenced if _IN_ENTRY.search(each)), [*fenced, text][0])
    text = f"{{{text}\n}}" if re.match(r'\s*"[^"]*"\s*:', text) else text
    value: Any = decode(text, source="the entry")[0]
    if (is_snippet := not _is_entry(value)) and (reaches := _REACHES.search(str(value))):
        raise WordsError(f"it has {reaches[0]}…}}, which reaches out of a sandbox: paste that entry alone")
    value = dict.fromkeys(names, value) if not is_snippet else value if isinstance(value, dict) else {}
    normal = normalized({SERVERS: value} if any(map(_is_entry, value.values())) else value)
    servers = normal.sections.get(SERVERS)
    servers = servers.items() if isinstance(servers, dict) else ()
    if not (found := {name: each for name, each in servers if _is_entry(each)}):
        lacks = "no server in it has a `command` or `url` that is text: " if value else ""
        raise WordsError(f"{lacks}write `mcpd add NAME -`, and paste or pipe a server's entry in JSON into it")
    if found.keys().isdisjoint(names) and len(found) > 1:
        raise WordsError(
            f"the snippet has {', '.join(found)}: name one, as in `mcpd add {next(iter(found))} -`"
        )
    name = next(each for each in (*names, *found) if each in found)
    left = [key for key in _USERS if is_snippet and found[name].get(key) is not None]
    notes = [f"{each.path}: {each.message}" for each in normal.notes]
    notes += [
        f"{key} is left out of the snippet: only you may set it, with --sandbox, --trust or `mcpd set`"
        for key in left
    ]
    entry = {key: value for key, value in found[name].items() if key not in left}
    if isinstance(env := entry.get("env"), dict):
        # The server would start with the README's words as its key, and fail at its first call.
        entry["env"] = {
            key: f"${{{key}}}" if names_credential(key) and PLACEHOLDER.fullmatch(str(value)) else value
            for key, value in env.items()
        }
    return WantedServer(name=named([*names, name][0]), entry=entry, notes=(*notes,))


def _is_entry(value: object) -> bool:
    entry = Translated(value).entry if isinstance(value, dict) else {}
    return isinstance(entry.get("command", entry.get("url")), str)


def with_versions(
    server: WantedServer, newest: Newest, *, images: bool = False, again: bool = False
) -> WantedServer:
    """Pin packages without a version (`again`: all) to the newest, and `images` to digests, if found."""
    command, args = server.entry.get("command"), server.entry.get("args", [])
    if command is None or not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        return server
    pinned: dict[str, str] = {}
    loose, kept, bounds = list[str](), list[tuple[str, str]](), list[int]()
    for words in started((command, *args)):
        for each in packages_in(words):
            at = args.index(each.written) if each.written in args else 0
            if again and args[at - 1] in _WITH and each.spec and not each.version:
                bounds += [at - 1, at]
        for package in unpinned(words, images=images, again=again):
            version = newest(package) if package.written in args else None
            if version is None:
                loose.append(package.written)
            elif package.version and not is_newer(version, package.version, package.source):
                kept.append((package.written, version))
            else:
                pinned[package.written] = package.pinned + version
    entry = {**server.entry, **({"args": [pinned.get(word, word) for word in args]} if args else {})}
    server = attrs.evolve(server, entry=entry, pinned=pinned, loose=(*loose,), kept=(*kept,))
    return attrs.evolve(server, bounds=(*bounds,))


_WITH = ("--with", "-w")  # of uv and pipx
_PARTS = re.compile(r"v?(?:(\d+)!)?([\d.]*)-?([^+]*)", re.ASCII)
_PHASES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "post": 1, "rev": 1, "r": 1}


def is_newer(one: str, other: str, source: str) -> bool:
    """Whether a version comes after another: by PEP 440 for `pypi`, else by semver."""
    return _rank(one, source) > _rank(other, source)


def _rank(version: str, source: str) -> tuple[Any, ...]:
    epoch, release, rest = next(_PARTS.finditer(version)).groups("")
    numbers = [*map(_number, re.sub(r"(\.0*)*$", "", release).split("."))]  # 1.0 is 1.0.0
    if source == "pypi":
        words = re.findall(r"([a-z]+)[-_.]?(\d*)", rest.lower())
        return _number(epoch), numbers, [*((_PHASES.get(word, -1), _number(at)) for word, at in words), (0, 0)]
    return numbers, not rest, [(not each.isdecimal(), _number(each), each) for each in rest.split(".")]


def _number(text: str) -> int:
    return int(text[:99]) if text.isdecimal() else 0


def pairs(words: Sequence[str], mark: str, what: str) -> dict[str, str]:
    """Parse `KEY=VALUE` words. Errors quote no value. Raises WordsError."""
    made: dict[str, str] = {}
    for word in words:
        key, found, value = word.partition(mark)
        if not found or not key.strip():
            raise WordsError(f"{what} is written as {what.upper()}{mark}VALUE")
        made[key.strip()] = value.strip() if mark == ":" else value
    return made


def _of_command(words: Sequence[str]) -> dict[str, Any]:
    program, *args = words
    return {"command": program, **({"args": args} if args else {})}


def named(name: str) -> str:
    """Check that a server can have a name, and return it. Raises WordsError."""
    if not SERVER_NAME.fullmatch(name):
        near = slug(name)
        hint = f": write {near}" if near else ""
        raise WordsError(
            f"a server's name has up to 64 of a-z, 0-9, - and _, and begins with a letter or digit{hint}"
        )
    return name


def short_name(package: str) -> str:
    """A server's name for a package: `time` for `mcp-server-time`, `playwright` for `@playwright/mcp`."""
    scope, _, name = _VERSION.sub("", package).rpartition("/")
    short = _FILLING.sub("", _FILLING.sub("", name))
    return slug(scope if short in {"", "mcp", "server"} and scope else short) or package


def name_at(url: str) -> str:
    """A server's name for a URL: `notion` for `https://mcp.notion.com/mcp`."""
    host = url.partition("://")[2].partition("/")[0].partition(":")[0]
    words = [each for each in host.split(".")[:-1] if not (each.isdecimal() or each in {"www", "api", "mcp"})]
    return (slug(words[-1]) if words else None) or "NAME"
