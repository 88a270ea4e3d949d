"""The table of commands. Imports nothing, since every command would pay for it: strings name the modules."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Words = dict[str, Any]

EX_CONFIG = 78
"""The configuration is faulty (sysexits.h): exit status of `run`, `check` and `reload`."""

MODULES = {
    "daemon.cli.local_commands": (
        "up import install uninstall add set unset rename edit pin upgrade enable remove"
        " login service start stop check doctor clients purge"
    ),
    "daemon.cli.lock": "lock",
    "daemon.cli.skill": "skill",
    "daemon.main.run": "run",
    "daemon.cli.connect": "connect",
    "daemon.cli.status": "status",
    "daemon.cli.following": "events logs calls cancel",
    "daemon.cli.audit": "audit",
    "daemon.cli.about": "version schema metrics ui token",
    "daemon.cli.completing": "completions",
    "daemon.cli.secret": "secret",
    "daemon.cli.sandbox": "sandbox allow-host",
    "daemon.cli.servers": "disable approve restart refresh reload logout",
    "daemon.cli.sessions": "sessions allow unload",
    "daemon.cli.settings": "describe lazy summaries",
    "daemon.cli.tools": "tools search",
    "daemon.cli.use": "call prompt prompts resources read",
}
"""The module of each command. It holds a `CommandLine` named like the command, in capitals; `connect` and
`run`, which must start fast, have `main` and `make_parser` instead."""

ENDING = {"stop", "remove", "uninstall", "logout", "cancel", "unload", "disable", "unset", "purge"}
"""Commands that end or remove something: never suggested for a typo."""


_READ: "Words" = {}


def help_table() -> "Words":
    """Read `help.toml`, once. This takes 10 ms, so only commands that print it do so."""
    if not _READ:
        import tomllib  # noqa: PLC0415 - see the module's docstring
        from pathlib import Path  # noqa: PLC0415 - likewise

        _READ.update(tomllib.loads(Path(__file__).with_name("help.toml").read_text(encoding="utf-8")))
    return _READ


def purposes(table: "Words") -> dict[str, tuple[str, str]]:
    """The purpose of each command, with an example, grouped as in `mcpd help`."""
    names = " ".join(table["groups"].values()).split()
    return {name: (table[name]["purpose"], table[name]["example"]) for name in names}


def implementation(command: str) -> "Any":
    """The object that implements a command: `main(argv)` returns the exit status; there is `make_parser()`."""
    # By full name, since `python -m daemon` comes here too.
    import importlib  # noqa: PLC0415 - see the module's docstring

    module = importlib.import_module(next(place for place, own in MODULES.items() if command in own.split()))
    return getattr(module, command.upper().replace("-", "_"), module)
