"""Finds the programs, packages and images in servers' command lines, and what well-known servers need."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import dropwhile, pairwise
from pathlib import PurePath
from typing import Any, NamedTuple, TypeAlias

import attrs
import msgspec

from daemon.config.client_keys import read_table
from daemon.config.config_model import WRITTEN, Server, Share
from daemon.kit.later import pattern

Words: TypeAlias = tuple[str, ...]

MAX_DEPTH = 4
"""Nested wrappers that mcpd looks through; a script could nest any number."""

_ASSIGNED = pattern(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
_COMMAND_OPTION = pattern(r"-[a-z]*c", re.ASCII)
_SHELL_VALUED = pattern(r"[-+][a-zA-Z]*[oO]|--rcfile|--init-file", re.ASCII)
_WINDOWS = pattern(r"\.(?:cmd|exe|ps1)$", re.IGNORECASE)
_OPERATOR = pattern(r"[;&|()<>]+")
_ENV_VALUED = frozenset({"-u", "--unset", "-C", "--chdir"})
_ENV_SPLIT = pattern(r"-S|--split-string")


_MOUNTED = pattern(r"(?:.*,)?(?:src|source)=([^,]+).*")
_WHOLE = pattern(r"/+|(?:/var)?/run/(?:docker|podman/podman|containerd/containerd)\.sock")
"""Mounts that expose the whole machine: the root directory or the container engine's socket."""


class Image(NamedTuple):
    """A container image."""

    name: str
    pinned: bool


class _Run(NamedTuple):
    image: str
    options: list[tuple[str, str]]


def started(words: Sequence[str], depth: int = 0) -> Iterator[Words]:
    """Yield each command that a command line starts, without its wrappers."""
    if not words or depth > MAX_DEPTH:
        return
    name, rest = _WINDOWS.sub("", PurePath(words[0]).name), words[1:]
    inner: list[Sequence[str]]
    if (valued := _table().wrappers.get(name)) is not None:
        inner = [behind_options(rest, valued)[_table().operands.get(name, 0) :]]
    elif name == "env":
        inner = [_behind_env(rest)]
    elif name in _table().shells and (script := _script(rest)) is not None:
        inner = _commands(script)
    else:
        yield (name, *rest)
        return
    for each in inner:
        yield from started(list(dropwhile(_ASSIGNED.fullmatch, each)), depth + 1)


def behind_options(words: Sequence[str], valued: Collection[str]) -> Sequence[str]:
    """Skip leading options and the values of those in `valued`."""
    return _options(words, valued)[1]


def _options(words: Sequence[str], valued: Collection[str]) -> tuple[list[tuple[str, str]], Sequence[str]]:
    """The leading options, each with its value or an empty text, and the words behind them."""
    found, at = list[tuple[str, str]](), 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        at += 1
        if option == "--":
            break
        if option in valued and not equals:
            value = "".join(words[at : at + 1])
            at += 1
        found.append((option, value))
    return found, words[at:]


def _behind_env(words: Sequence[str]) -> Sequence[str]:
    for at, word in enumerate(words):
        if _ENV_SPLIT.fullmatch(word):
            return (*_split(" ".join(words[at + 1 : at + 2])), *words[at + 2 :])
        if not word.startswith("-") and (at == 0 or words[at - 1] not in _ENV_VALUED):
            return words[at:]
    return ()


def _script(words: Sequence[str]) -> str | None:
    valued = False
    for at, word in enumerate(words[:-1]):
        if valued:
            valued = False
        elif _COMMAND_OPTION.fullmatch(word):
            return words[at + 1]
        elif _SHELL_VALUED.fullmatch(word):
            valued = True
        elif not word.startswith(("-", "+")):
            return None
    return None


def _commands(script: str) -> list[Sequence[str]]:
    found: list[list[str]] = [[]]
    for token in _split(script.replace("\n", ";")):
        if _OPERATOR.fullmatch(token):
            found.append([])
        else:
            found[-1].append(token)
    return [each for each in found if each]


def _split(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return []


def warnings(words: Sequence[str]) -> Iterator[str]:
    """Warn of an unpinned image and of a container that can reach the whole machine."""
    run = _run_of(words)
    if run is None:
        return
    if not _image(run.image).pinned:
        yield (
            f"the image '{run.image}' has no version: whoever can push it decides what runs here after the next"
            " pull. Name a release, or better its digest: image@sha256:..."
        )
    for option, value in run.options:
        if option == "--privileged" and value != "false":
            yield "--privileged lets the container do all that root can. Leave it out, or give it one --cap-add"
        elif option == "--pid" and value == "host":
            yield "--pid=host shows the container every process of the machine. Leave it out"
        elif option in {"-v", "--volume", "--mount"} and (whole := _whole(value)):
            yield f"the container gets {whole}, and with it the whole machine. Give it only what it needs"


def runs_a_container(words: Sequence[str]) -> bool:
    """Whether a command line starts a container engine."""
    return bool(words) and words[0] in _table().containers["engines"]


def image_of(words: Sequence[str]) -> Image | None:
    """The image that a command line runs; None if it runs none."""
    run = _run_of(words)
    return run and _image(run.image)


def _run_of(words: Sequence[str]) -> _Run | None:
    if not runs_a_container(words):
        return None
    valued = _table().containers
    behind = behind_options(words[1:], valued["global"])
    behind = behind[1:] if behind and behind[0] == "container" else behind
    # `docker compose run` names a service, not an image.
    if not behind or behind[0] != "run":
        return None
    options, rest = _options(behind[1:], valued["run"])
    return _Run(rest[0], options) if rest else None


def _image(written: str) -> Image:
    # A registry's port has a colon as well: only what follows the last slash can be a tag.
    last = written.rpartition("/")[2]
    name, _, digest = last.partition("@")
    tag = name.partition(":")[2]
    return Image(written, bool(digest) or tag not in {"", "latest"})


def _whole(value: str) -> str | None:
    named = _MOUNTED.fullmatch(value)
    source = named[1] if named else value.partition(":")[0]
    return source if _WHOLE.fullmatch(source) else None


class Runner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that fetches and runs a package; one row of the table may describe several commands."""

    commands: Words
    example: str
    """An exact version, as it is appended to the package's name."""
    named_by: Words = ()
    """Options whose value is the package; without them, the package is the first word that is no option."""
    valued: Words | str = ()
    """Other options that take the next word as their value, or the name of a shared list of them."""
    more: Words = ()
    own: Words = ()
    """First words that are programs of the runner itself."""
    runs_files: bool = False
    """Whether the first word that is no option is a local program instead of a package."""

    @property
    def words(self) -> Words:
        """The words of the command, in a row that describes a single runner."""
        return tuple(self.commands[0].split())


class _RunnerTable(msgspec.Struct, frozen=True):
    shells: frozenset[str]
    operands: dict[str, int]
    wrappers: dict[str, frozenset[str]]
    containers: dict[str, frozenset[str]]
    valued: dict[str, Words]
    runners: list[Runner]


@cache
def _table() -> _RunnerTable:
    return read_table("runners", _RunnerTable)


@cache
def runners() -> tuple[Runner, ...]:
    """Every known runner, one for each command."""
    return tuple(
        msgspec.structs.replace(
            row,
            commands=(command,),
            valued=_table().valued[row.valued] if isinstance(row.valued, str) else row.valued,
        )
        for row in _table().runners
        for command in row.commands
    )


def _run_by(words: Sequence[str]) -> tuple[Runner, Sequence[str]] | None:
    for runner in runners():
        rest = _behind(words, runner)
        if rest is not None:
            return runner, rest
    return None


_PACKAGE = pattern(r"((?:npm:|jsr:)?@?[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?)(\[[\w,.-]*\])?(.*)", re.ASCII)

_EXACT = pattern(r"(?:@|==)\s*v?\d+(?:\.\d+)+[\w.+!-]*(?:/.*)?", re.ASCII)
_VERSIONED = pattern(r"(?:[@=<>~!^].*)?", re.ASCII)
_REPOSITORY = pattern(r"(?:.*@ )?(?P<from>git\+\w+://.+|git://.+|github:.+|gitlab:.+|bitbucket:.+)", re.ASCII)
_COMMIT = pattern(r"[@#][0-9a-f]{7,64}(?:[#&?].*)?$", re.ASCII)
_BRANCH = pattern(r"[@#][^/@#]*$")
_SCRIPT = pattern(r"https?://\S+", re.ASCII)
_RELEASE = pattern(r"[@/]v?\d+\.\d+[\w.+-]*/|/[0-9a-f]{40}/", re.ASCII)


def moving(words: Sequence[str]) -> Iterator[str]:
    """Warn of packages whose code may change from one start to the next."""
    # Offline, a runner takes what it has: nothing moves.
    if (run := _run_by(words)) and "--offline" not in words:
        for package in _packages(run[1], run[0]):
            yield from _moves(package, run[0])


class Package(NamedTuple):
    """A package that a command fetches from npm, PyPI, or as an image from a registry."""

    written: str
    name: str
    pinned: str
    """The text before the version, if the package is pinned."""
    source: str
    spec: str
    """The version as written, with its mark; for an image, the digest."""

    @property
    def version(self) -> str:
        """The exact version or digest; empty without one."""
        return self.spec.lstrip("@= ") if _EXACT.fullmatch(self.spec) or ":" in self.spec else ""


def packages_in(words: Sequence[str]) -> Iterator[Package]:
    """The packages and images that a command fetches."""
    if (image := image_of(words)) is not None:
        name, mark, digest = image.name.partition("@")
        yield Package(image.name, name, f"{_TAG.sub('', image.name)}@", words[0], mark + digest)
    run = _run_by(words)
    if run is None or words[0] == "deno":
        return
    source, mark = ("npm", "@") if run[0].example.startswith("@") else ("pypi", "==")
    for package in _packages(run[1], run[0]):
        match = _PACKAGE.fullmatch(package)
        # To npm, `owner/name` is a repository.
        if match is not None and ("/" not in match[1] or match[1][0] == "@"):
            yield Package(package, match[1], f"{match[1]}{match[2] or ''}{mark}", source, match[3])


def unpinned(words: Sequence[str], *, images: bool = False, again: bool = False) -> Iterator[Package]:
    """Packages with no version or `@latest` (if `again`, an exact one, too), and `images` with no digest.

    Packages of a registry that the command names are left out: other registries may use the same names.
    """
    found = packages_in(words) if "--offline" not in words else ()
    for each in (each for each in found if not is_elsewhere(each, words)):
        is_image = each.source not in {"npm", "pypi"}
        if (images and not each.spec) if is_image else each.spec in {"", "@latest"} or (again and each.version):
            yield each


def pinnable(command: str, args: Sequence[str]) -> Iterator[Package]:
    """Yield the unpinned packages and images of a command line, if they are words that a pin can replace."""
    for words in started((command, *args)):
        image = image_of(words)
        names = () if image and image.pinned else unpinned(words, images=True)
        yield from (each for each in names if each.written in args)


def without_pins(command: str, args: Sequence[str]) -> list[str]:
    """The arguments, without the exact versions of packages and the digests of images."""
    packages = (each for words in started((command, *args)) for each in packages_in(words) if each.version)
    names = {each.written: each.pinned.rstrip("@=") for each in packages}
    return [names.get(word, word) for word in args]


_OF_REGISTRY = pattern(r"--(?:default-|extra-)?index(?:-url)?|--find-links|--registry|-[if]", re.ASCII)


def is_elsewhere(package: Package, words: Sequence[str]) -> bool:
    """Whether a command itself names the registry of its package; the program's own arguments do not count."""
    if package.source not in {"npm", "pypi"} or (run := _run_by(words)) is None:
        return False
    runner, rest = run
    program = behind_options(rest, (*runner.valued, *runner.more, *runner.named_by))
    options = words[: len(words) - len(program)]
    return any(_OF_REGISTRY.fullmatch(word.partition("=")[0]) for word in options)


_SYSTEM = ("/usr/", "/bin/", "/opt/", "/snap/", "/nix/", "/run/current-system/")
"""Directories where only root installs programs; a project may bring its own `./docker`."""


def runs_container(server: Server) -> bool:
    """Whether an entry starts only container engines, and no other program with an engine's name."""
    command = server.command or ""
    if "/" in command and not command.startswith(_SYSTEM):
        return False
    programs = {words[0] for words in started((server.command or "", *server.args))}
    return bool(programs) and programs <= set(_table().containers["engines"])


def fetches(words: Sequence[str]) -> bool:
    """Whether a command may need the network to start."""
    run = _run_by(words)
    return run is not None and not run[0].runs_files and not {"--offline", "--no-install"} & set(words)


def packages_of(words: Sequence[str]) -> list[str]:
    """The packages that a runner starts; empty for other commands."""
    if (run := _run_by(words)) is None:
        return []
    runner, rest = run
    valued = (*runner.valued, *runner.more)
    return _packages(rest, msgspec.structs.replace(runner, more=(), valued=valued, runs_files=False))


def program_of(words: Sequence[str]) -> list[str]:
    """The program that a runner starts besides its package, or the local file that the runner starts."""
    if (run := _run_by(words)) is None:
        return []
    runner, rest = run
    first = list(behind_options(rest, (*runner.valued, *runner.more, *runner.named_by))[:1])
    return first if runner.runs_files or first != packages_of(words) else []


def _behind(words: Sequence[str], runner: Runner) -> Sequence[str] | None:
    if tuple(words[:1]) != runner.words[:1]:
        return None
    rest = words[1:]
    for word in runner.words[1:]:
        rest = behind_options(rest, runner.valued)
        if not rest or rest[0] != word:
            return None
        rest = rest[1:]
    return rest


def _packages(words: Sequence[str], runner: Runner) -> list[str]:
    options, rest = _options(words, (*runner.valued, *runner.more, *runner.named_by))
    named = [value for option, value in options if option in runner.named_by]
    more = [each for option, value in options if option in runner.more for each in value.split(",")]
    is_local = runner.runs_files or "".join(rest[:1]).partition("@")[0] in runner.own
    return [*(named or ([] if is_local else rest[:1])), *more]


def _moves(package: str, runner: Runner) -> Iterator[str]:
    repository, match = _REPOSITORY.fullmatch(package), _PACKAGE.fullmatch(package)
    if repository is not None:
        if not _COMMIT.search(repository["from"]):
            mark = "@" if runner.example.startswith("==") else "#"
            yield (
                f"'{package}' names no commit: every start may run other code. Write the one you have looked"
                f" at, as in '{_BRANCH.sub('', package)}{mark}COMMIT'"
            )
    elif _SCRIPT.fullmatch(package):
        if runner.words[0] == "deno" and not _RELEASE.search(package):
            yield (
                f"'{package}' names no release: every start may run other code. Write an address with the"
                " release that you have looked at, or keep the file here"
            )
    elif match is not None and _VERSIONED.fullmatch(match[3]) and not _EXACT.fullmatch(match[3]):
        # deno runs a file of this machine unless a prefix says where the package is from.
        if runner.words[0] == "deno" and not package.startswith(("npm:", "jsr:")):
            return
        yield (
            f"'{package}' has no exact version: every start may run another release, and needs the network to"
            f" find out. Write the one you have looked at, as in '{match[1]}{match[2] or ''}{runner.example}'"
        )


class Isolation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An option with which several instances of a server can run on one machine."""

    option: str
    unless: frozenset[str]
    """Arguments and variables that isolate the server already, or share it on purpose."""
    why: str


class KnownServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A well-known server whose state or limits its entry should mention."""

    names: frozenset[str]
    """Names of packages, images and modules: in lower case, with - for _, without a version."""
    programs: frozenset[str] = frozenset()
    """Names of programs that belong to no package; a package of the same name is another server."""
    why: str
    """The problem if clients share an instance or call it at once, as a predicate."""
    source: str
    share: Share = Share.ALL
    workspace: tuple[str, ...] = ()
    only_with: frozenset[str] = frozenset()
    """The advice applies only with one of these arguments; empty if it always applies."""
    apart: Isolation | None = None
    in_flight: int | None = None


@attrs.frozen(kw_only=True)
class Advice:
    """Advice to add a key to the entry of a well-known server."""

    key: str
    value: Share | int | tuple[str, ...]
    why: str
    """The problem without the key, as a predicate of the server's name."""
    in_container: bool = False
    """Whether the server runs in a container, which sees only mounted directories."""
    in_script: bool = False
    """Whether the words belong in a shell's script: the program does not get words after the script."""

    def written(self, name: str) -> str:
        """Describe a key that mcpd wrote into a new entry: the reason, and the command that undoes it."""
        match self.value:
            case Share() as share:
                setting, undo = f'"share": "{share}"', f"set {name} share=all"
            case int(most):
                setting, undo = f'"limits": {{"inFlight": {most}}}', f"unset {name} limits.inFlight"
            case words:
                setting, undo = f"{' '.join(words)} in args", f"unset {name} '{self.key}'"
        return f"{name} {self.why}: {setting} is written; undo: `mcpd {undo}`"


@cache
def known_servers() -> tuple[KnownServer, ...]:
    """All rows of known_servers.toml."""
    return read_table("known_servers", dict[str, tuple[KnownServer, ...]])["servers"]


def isolating() -> frozenset[str]:
    """Arguments that mcpd adds to entries; a comparison with a client's entry leaves them out."""
    return frozenset(row.apart.option for row in known_servers() if row.apart is not None)


_VERSION = pattern(r"(?<=.)(?:@|==)[^/@]*$|\[[^\]]*\].*$")
_TAG = pattern(r"(?::[^/@]*)?(?:@.*)?$")
_DEFAULT_REGISTRY = "docker.io/"
_SCRIPT_RUNNERS = frozenset({"bun", "deno", "node"})
_PYTHON = pattern(r"python[\d.]*|pypy[\d.]*")


def advice(server: Server) -> tuple[Advice, ...]:
    """Advice on the keys that an enabled server's entry lacks; empty for an unknown server."""
    if not server.enabled or not server.command:
        return ()
    for words in started((server.command, *server.args)):
        if (row := _row(words)) is not None:
            return tuple(_advice(server, row, words))
    return ()


def completed(entry: Mapping[str, Any], server: Server) -> tuple[dict[str, Any], tuple[Advice, ...]]:
    """Add the keys that a well-known server needs to a new entry; returns the entry and the additions.

    A server bound to a directory keeps its arguments, and gets an instance for each client's directory.
    """
    made, done = dict(entry), list[Advice]()
    while found := [each for each in advice(server) if not each.in_script]:
        each = found[0]
        match each.value:
            case int(most):
                made["limits"] = {**made.get("limits", {}), "inFlight": most}
                server = attrs.evolve(server, limits=attrs.evolve(server.limits, in_flight=most))
            case tuple(words) if WRITTEN not in words:
                each = attrs.evolve(each, key=f"args[{len(made.get('args', []))}]")
                made["args"] = [*made.get("args", []), *words]
                server = attrs.evolve(server, args=(*server.args, *words))
            case other:
                share = other if isinstance(other, Share) else Share.WORKSPACE
                each = attrs.evolve(each, key="share", value=share)
                made["share"] = str(share)
                server = attrs.evolve(server, share=share)
        done.append(each)
    return made, tuple(done)


def _advice(server: Server, row: KnownServer, words: Sequence[str]) -> Iterator[Advice]:
    in_container = image_of(words) is not None
    share = server.shared_by
    bound = not row.only_with or any(_names(word, row.only_with) for word in words)
    if server.share is None and share is Share.ALL and row.share is not Share.ALL and bound:
        share = row.share
        if row.workspace:
            yield Advice(key="args", value=row.workspace, why=row.why, in_container=in_container)
        else:
            yield Advice(key="share", value=row.share, why=row.why)
    given = {*words, *server.args, *server.env}
    apart = None if in_container or share is Share.ALL else row.apart
    if apart is not None and not any(_names(word, apart.unless) for word in given):
        reached = started((server.command or "", *server.args, apart.option))
        in_script = all(each[-1] != apart.option for each in reached)
        yield Advice(key="args", value=(apart.option,), why=apart.why, in_script=in_script)
    if row.in_flight is not None and server.limits.in_flight > row.in_flight:
        yield Advice(key="limits.inFlight", value=row.in_flight, why=row.why)


def _names(word: str, options: frozenset[str]) -> bool:
    return word.partition("=")[0] in options


def _row(words: Sequence[str]) -> KnownServer | None:
    for name, is_program in _names_of(words):
        plain = name.lower().replace("_", "-")
        for row in known_servers():
            in_package = any(f"node_modules/{package}/" in name for package in row.names)
            if plain in row.names or in_package or (is_program and plain in row.programs):
                return row
    return None


def _names_of(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
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
