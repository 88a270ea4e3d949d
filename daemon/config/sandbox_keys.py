"""A server's keys for its sandbox, as VS Code writes them or as one word (docs/sandbox.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Annotated, TypeAlias

import attrs

from daemon.config.hosts import ANY, REGISTRIES, HostRules, pattern_problem
from daemon.config.tuning import Rule, like
from daemon.kit.wording import camel

Domain = Annotated[str, Rule(pattern_problem)]
SandboxPath = Annotated[
    str, like(re.compile(r"[^*?\[\]]+"), "write the path of one file or directory: mcpd knows no patterns here")
]


class SandboxMode(StrEnum):
    """The sandbox in one word (docs/sandbox.md)."""

    HOME = "home"
    STRICT = "strict"
    OFF = "off"


@attrs.frozen(kw_only=True)
class SandboxFilesystem:
    """Files of a sandboxed server. Paths are absolute, `~/...`, `${workspace}/...` or relative to `cwd`."""

    allow_read: tuple[SandboxPath, ...] = ()
    """Readable even if the mode or `denyRead` hides it."""
    deny_read: tuple[SandboxPath, ...] = ()
    """Hidden, besides the secrets that are always hidden."""
    allow_write: tuple[SandboxPath, ...] = ()
    """Writable and readable."""
    deny_write: tuple[SandboxPath, ...] = ()
    """Not writable even below `allowWrite`."""


@attrs.frozen(kw_only=True)
class SandboxNetwork:
    """Hosts of a sandboxed server, which it reaches through mcpd's proxy alone."""

    allowed_domains: tuple[Domain, ...] | None = None
    """Hosts: `api.example.com`, `*.example.com` for the names below it, `*` for all public ones; private
    ones by their own name or address. When absent: the registry that `npx` or `uvx` installs from."""
    denied_domains: tuple[Domain, ...] = ()
    """Refused in any case."""
    allow_local_binding: bool = False
    """No effect: a server may always listen on its own loopback."""


@attrs.frozen(kw_only=True)
class SandboxRules:
    """The sandbox of a server, in VS Code's words."""

    mode: SandboxMode = SandboxMode.HOME
    """home: everything is readable but secrets. strict: home directory and /tmp are empty. off: no sandbox."""
    filesystem: SandboxFilesystem = attrs.field(factory=SandboxFilesystem)
    """Files besides those of the mode."""
    network: SandboxNetwork = attrs.field(factory=SandboxNetwork)
    """Hosts."""

    def rewritten(self, change: Callable[[str], str]) -> SandboxRules:
        """The same rules with the paths changed."""
        files = attrs.asdict(self.filesystem)
        changed = {name: tuple(map(change, paths)) for name, paths in files.items()}
        return attrs.evolve(self, filesystem=SandboxFilesystem(**changed))

    def as_written(self) -> dict[str, object]:
        """The object for an entry, without keys that have no effect."""
        parts = {"filesystem": attrs.asdict(self.filesystem), "network": attrs.asdict(self.network)}
        made: dict[str, object] = {} if self.mode is SandboxMode.HOME else {"mode": str(self.mode)}
        for part, keys in parts.items():
            lists = {
                camel(key): list(each)
                for key, each in keys.items()
                if isinstance(each, tuple) and (each or key == "allowed_domains")
            }
            made |= {part: lists} if lists else {}
        return made

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths, as the user has written them."""
        return tuple(path for paths in attrs.astuple(self.filesystem) for path in paths)

    @property
    def host_rules(self) -> HostRules:
        """The rules of the proxy."""
        return HostRules(allowed=self.hosts, denied=self.network.denied_domains)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The allowed hosts."""
        return self.network.allowed_domains or ()


SandboxWish: TypeAlias = SandboxMode | SandboxRules | None
"""The value of `sandbox`."""


def sandbox_in_force(
    wish: SandboxWish,
    default: SandboxWish = None,
    programs: Collection[str] = (),
    *,
    enabled: bool | None = None,
) -> SandboxRules | None:
    """The sandbox of an entry that starts `programs`, or else the `default`; None without a sandbox."""
    if enabled is False:
        return None
    if enabled and wish in {None, SandboxMode.OFF}:
        # As in VS Code, which allows no host, unless the default is as strict.
        wish = SandboxRules() if default in {None, SandboxMode.OFF, SandboxMode.HOME} else default
    if wish is None:
        wish = default
    if wish is None or wish is SandboxMode.OFF:
        return None
    registries = tuple(host for each in programs for host in REGISTRIES.get(each, ()))
    if isinstance(wish, SandboxMode):
        allowed = (ANY, *registries) if wish is SandboxMode.HOME else ()
        return SandboxRules(mode=wish, network=SandboxNetwork(allowed_domains=allowed))
    if wish.mode is SandboxMode.OFF:
        return None
    if wish.network.allowed_domains is None:
        allowed = registries if wish.mode is SandboxMode.HOME else ()
        return attrs.evolve(wish, network=attrs.evolve(wish.network, allowed_domains=allowed))
    return wish
