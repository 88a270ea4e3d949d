"""The table of commands. Imports nothing, since every command would pay for it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Words = dict[str, Any]

EX_CONFIG = 78
"""The configuration is faulty (sysexits.h): exit status of `run`, `check` and `reload`."""

ANSWER_SECONDS = 10.0
"""Seconds for the daemon to answer, which takes milliseconds if the daemon is well."""

APPROVE_SECONDS = 30.0
"""Seconds for an approval: the daemon writes `mcpd.lock` where there is one."""

CHANGE_SECONDS = 60.0
"""Seconds for a reload of the configuration: removed servers stop first, and another reload may be running."""

REFRESH_SECONDS = 60.0
"""Seconds for a refresh: a server has `timeouts.list` to answer, and a dormant one starts first."""

LOGOUT_SECONDS = 75.0
"""Seconds for a logout: 30 for each of two tokens at the authorization server, then the restart."""

UP_SECONDS = 120.0
"""Seconds for a server to come up: a first start may install a package."""

MODEL_SECONDS = 120.0
"""Seconds for a summary: a model has `summaries.timeout` to answer, 60 s by default."""

LOGIN_SECONDS = 600.0
"""Seconds for the user to log in: the pages of authorization servers expire sooner."""

CALL_SECONDS = 660.0
"""Seconds for a result: longer than the daemon waits for a call (`timeouts.callMax`, 600 s)."""

SERVE_SECONDS = 30.0
"""Seconds for a daemon to start serving: usually a second, ten on a busy machine."""

STOP_SECONDS = 20.0
"""Seconds for the daemon to stop: 5 for all servers, and `listen.http.drain` for clients over HTTP."""

FOUND = 20
"""Tools that a search shows without `--limit`: as many as a model gets."""

_TRIED = "(--keep|--or-undo) --no-reload --dry-run --config:F --json --control:P"
_TALKING = "-q,--quiet --no-input --root:DIR* --workspace:DIR (--profile:P|--as-operator) --json --control:P"


def _within(seconds: float) -> str:
    return f"--json --control:P --timeout:SECONDS={seconds}"


_ASKED = _within(ANSWER_SECONDS)

# An argument is written as
#   NAME, NAME?, NAME*, NAME+    a word, at most one, any number, at least one
#   --name, --[no-]name          a flag, a flag with an opposite
#   -n,--name:VALUE              an option; VALUE? may be missing, VALUE* repeated, VALUE+ several words
#   --name:a|b, --name:VALUE=2   an option with these values only, with a default
#   (--a|--b), ~--name           options that exclude each other, an option that the help leaves out
#   attribute=NAME               an argument whose attribute of the options has another name
COMMANDS = {
    # Setting up.
    "up": "cli.up:up --dry-run --yes --keyring --one-to-one --no-service client=--clients:CLIENT+"
    f" --wait:SECONDS={UP_SECONDS} --unsandboxed:SERVER* {_ASKED}",
    "import": "cli.import_servers:import_servers clients=--from:CLIENT+ --write --unsandboxed:SERVER* --keyring"
    f" --migrate-env --dry-run --yes {_within(CHANGE_SECONDS)}",
    "install": "cli.install:install CLIENT* --all --dry-run --scope:user|project --profile:P --surface:S"
    " --one-to-one --keep --yes",
    "uninstall": "cli.install:uninstall CLIENT* --all --dry-run",
    "clients": "cli.install:clients --json",
    "purge": "cli.install:purge --yes --dry-run",
    "skill": "cli.install:skill action=install|uninstall|show CLIENT*"
    f" --control:P --timeout:SECONDS={ANSWER_SECONDS}",
    "add": "cli.add:add words=NAME* --env:K=V* --header:'K:V'* --yes --env-file:FILE --type:T --share:S"
    " --trust:all|changes|none --sandbox:home|strict|off --version:V --shown:DIGEST --keyring --offline"
    f" --description:TEXT --replace {_TRIED} --timeout:SECONDS={UP_SECONDS}",
    "set": f"cli.editing:set_keys server=SERVER|. keys=KEY[=VALUE]|-+ {_TRIED} --timeout:SECONDS={UP_SECONDS}",
    "unset": f"cli.editing:unset_keys server=SERVER|. keys=KEY+ {_TRIED} --timeout:SECONDS={UP_SECONDS}",
    "rename": f"cli.editing:rename SERVER NEW {_TRIED} --timeout:SECONDS={UP_SECONDS}",
    "edit": f"cli.editing:edit files=FILE* --no-reload --config:F {_within(UP_SECONDS)}",
    "remove": "cli.add:remove servers=SERVER+ --no-reload --dry-run ~--yes --config:F"
    f" --control:P --timeout:SECONDS={CHANGE_SECONDS}",
    "secret": "cli.secret:secret action=set|list|remove? name=NAME* --yes --json",
    "pin": f"cli.editing:pin servers=SERVER* --all {_TRIED} --timeout:SECONDS={UP_SECONDS}",
    "upgrade": "cli.editing:pin servers=SERVER* --all --env:K=V* --header:'K:V'* --yes"
    f" {_TRIED} --timeout:SECONDS={UP_SECONDS}",
    "lock": f"cli.lock:lock servers=SERVER* (--check|--approve) --config:F {_within(UP_SECONDS)}",
    "login": f"cli.login:log_in SERVER --no-browser --device --scope:S {_within(LOGIN_SECONDS)}",
    "logout": f"cli.servers:logout SERVER {_within(LOGOUT_SECONDS)}",
    "service": "cli.service:service_action action=install|uninstall|status?"
    " --dry-run --[no-]linger --[no-]now --yes --json",
    "token": "cli.about:tokens action=show|new|list|confirm|revoke? NAME? --profile:P*"
    f" --console:read|control --workspace:GLOB* --default {_ASKED}",
    "completions": "cli.completing:completions shell=bash|zsh|fish",
    # The daemon.
    "start": "cli.start:start --config:F --state-dir:D --restart"
    f" --timeout:SECONDS={SERVE_SECONDS} ~--window:new|known --json",
    "stop": f"cli.start:stop ~servers=NAME* --control:P --timeout:SECONDS={STOP_SECONDS}",
    "run": "main.run:run --config:F --state-dir:D --http:ADDR? --[no-]lazy --detached"
    " --log-format:text|dated|journal|json"
    " --log-level:trace|debug|info|warning|error ~--window:F ~--for-lock:N",
    "connect": "cli.connect",
    "reload": f"cli.servers:reload {_within(CHANGE_SECONDS)}",
    "version": "cli.about:show_versions --json",
    "schema": "cli.about:schema",
    # Looking.
    "status": f"cli.status:status servers=SERVER|INSTANCE* -w,--watch:SECONDS? {_ASKED}",
    "doctor": "cli.doctor:doctor --config:F --state-dir:D --end-leftovers --json",
    "check": "cli.doctor:check file=F? --config:F --json",
    "logs": "cli.following:logs server=SERVER|INSTANCE? ~others=NAME* --daemon -f,--follow --no-events"
    f" --since:WHEN -n,--last,--tail:N {_ASKED}",
    "events": "cli.following:events server=SERVER|INSTANCE? -f,--follow --since:WHEN --kind:KIND* --session:KEY"
    f" -n,--last,--tail:N {_ASKED}",
    "audit": "cli.audit:audit server=SERVER[/TOOL]|verify? --since:WHEN --until:WHEN --session:KEY"
    f" --decision:DECISION* --limit:N --format:jsonl|ocsf --head:SEQ:DIGEST|FILE* --state-dir:D {_ASKED}",
    "sessions": f"cli.sessions:sessions KEY? --profile:NAME {_ASKED}",
    "calls": "cli.following:calls server=SERVER|INSTANCE? -f,--follow --errors --since:WHEN --session:KEY"
    f" -n,--last,--tail:N {_ASKED}",
    "metrics": f"cli.about:metrics --control:P --timeout:SECONDS={ANSWER_SECONDS}",
    "ui": f"cli.about:ui --print --read-only --end --control:P --timeout:SECONDS={ANSWER_SECONDS}",
    # Using.
    "tools": "cli.tools:tools name=SERVER[/TOOL]? --category:C --surface:NAME? (--profile:P|--as-operator)"
    f" --format:text {_ASKED}",
    "search": f"cli.tools:search WORDS* also=--or:WORDS+* --category:C --limit:N={FOUND} --registry --offline"
    f" (--profile:P|--as-operator) {_ASKED}",
    "prompts": f"cli.use:prompts SERVER? {_ASKED}",
    "resources": f"cli.use:resources SERVER? {_ASKED}",
    "call": f"cli.use:call tool=SERVER/TOOL arguments=ARGS* {_TALKING} --timeout:SECONDS={CALL_SECONDS}",
    "prompt": f"cli.use:prompt prompt=SERVER/NAME arguments=ARGS* {_TALKING} --timeout:SECONDS={CALL_SECONDS}",
    "read": f"cli.use:read resource=URI|SERVER/URI --output:FILE {_TALKING} --timeout:SECONDS={CALL_SECONDS}",
    # Changing.
    "restart": f"cli.servers:restart servers=SERVER|INSTANCE* --all {_ASKED}",
    "disable": f"cli.servers:disable names=SERVER[/TOOL]+ {_ASKED}",
    "enable": f"cli.editing:enable names=SERVER[/TOOL]+ {_TRIED} --timeout:SECONDS={UP_SECONDS}",
    "approve": f"cli.servers:approve names=SERVER[/NAME]* (--diff|--all) {_within(APPROVE_SECONDS)}",
    "sandbox": "cli.sandbox:sandbox SERVER (--show|--learn|--shell) length=--for:TIME --mode:home|strict"
    f" --calls:FILE --write --config:F {_within(CHANGE_SECONDS)}",
    "allow-host": "cli.sandbox:allow_host SERVER hosts=HOST+ --config:F"
    f" --control:P --timeout:SECONDS={CHANGE_SECONDS}",
    "describe": f"cli.settings:describe tool=SERVER/TOOL TEXT? --reset {_within(CHANGE_SECONDS)}",
    "refresh": f"cli.servers:refresh server=SERVER|INSTANCE? {_within(REFRESH_SECONDS)}",
    "allow": f"cli.sessions:allow SESSION tool=SERVER/TOOL? seconds=--for:TIME --revoke {_ASKED}",
    "unload": f"cli.sessions:unload SESSION tool=SERVER/TOOL? {_ASKED}",
    "cancel": f"cli.following:cancel CALL {_ASKED}",
    "lazy": f"cli.settings:lazy switch=on|off? --profile:PROFILE --config:F {_within(CHANGE_SECONDS)}",
    "summaries": "cli.settings:summaries (--models|--model:NAME|--test:QUESTION?) --config:F"
    f" {_within(MODEL_SECONDS)}",
}
"""The function of each command, and its arguments; for `connect`, which must start fast, its module."""

_UNASKED = {"needs": False}
_LOCAL = {"needs": False, "reaches": False}
_CHANGING = {"needs": False, "changing": ""}
_NEEDING = {"changing": ""}

MANNERS: "dict[str, Words]" = {
    **dict.fromkeys(("doctor", "run", "skill", "start", "stop"), _UNASKED),
    **dict.fromkeys(("uninstall", "clients", "purge", "check", "version", "schema", "completions"), _LOCAL),
    **dict.fromkeys(("up", "import", "edit", "set", "unset", "rename", "pin", "upgrade", "enable"), _CHANGING),
    **dict.fromkeys(("lock", "service", "allow-host"), _CHANGING),
    **dict.fromkeys(("lazy", "sandbox", "summaries"), _NEEDING),
    "secret": {**_LOCAL, "changing": ""},
    "install": {"needs": False, "changing": ": `mcpd check` says more"},
    "remove": {"needs": False, "changing": "; if these places name the server, remove them first"},
    "add": {
        **_CHANGING,
        "intermixed": True,
        "rest": True,
        "synopsis": "[options] NAME -- COMMAND ... | NAME URL | [NAME] npm:P | pypi:P | registry:SERVER"
        " | BUNDLE | -",
    },
    "audit": {"needs": False, "synopsis": "[options] [SERVER[/TOOL] | verify]"},
    "call": {"intermixed": True},
}
"""Further fields of `command.CommandLine`, for commands that differ."""

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
    """The object that implements a command: `main(argv)` returns the exit status; it has `make_parser()`."""
    # By full name, since `python -m daemon` comes here too.
    import importlib  # noqa: PLC0415 - see the module's docstring

    place, _, arguments = COMMANDS[command].partition(" ")
    if ":" not in place:
        return importlib.import_module(f"daemon.{place}")
    line = importlib.import_module("daemon.cli.command").CommandLine
    return line(command, place, arguments, **MANNERS.get(command, {}))
