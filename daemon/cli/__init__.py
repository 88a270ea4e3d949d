"""The `mcpd` command: looks at its first argument and imports the one module that implements it.

Nothing but `sys` is imported here, because `mcpd connect` is started for every window of every agent and
`mcpd status` by every watcher: each pays only for what it uses. A command is a module with
`main(argv) -> int`, where argv holds the arguments after the command's name and the int is the exit status.
"""

import sys

COMMANDS = {
    "up": ("set everything up: import, service, install; asks first", "mcpd up"),
    "import": ("find the servers that clients on this machine have, and take them", "mcpd import --write"),
    "install": ("put mcpd into a client's configuration", "mcpd install claude-code"),
    "uninstall": ("take mcpd out of a client's configuration again", "mcpd uninstall claude-code"),
    "add": ("add a server to the configuration", "mcpd add time -- uvx mcp-server-time"),
    "remove": ("remove a server from the configuration", "mcpd remove time"),
    "login": ("log in to a server that wants OAuth", "mcpd login notion"),
    "logout": ("end a login and forget it", "mcpd logout notion"),
    "service": ("install, remove or show the systemd user service", "mcpd service install"),
    "start": ("start the daemon in the background, if none runs", "mcpd start"),
    "stop": ("stop the daemon that runs in the background", "mcpd stop"),
    "run": ("run the daemon in the foreground", "mcpd run --config ~/.config/mcpd/mcpd.json"),
    "connect": ("bridge an MCP client on stdin and stdout to the daemon", "mcpd connect --profile default"),
    "status": ("show every server: its state, why, its numbers", "mcpd status --watch"),
    "check": ("validate a configuration without starting anything", "mcpd check mcpd.json"),
    "doctor": ("look for what is wrong, and say what to do", "mcpd doctor"),
    "logs": ("show what a server wrote on its stderr", "mcpd logs git -f"),
    "events": ("show what happened to servers, and when", "mcpd events git --since 1h"),
    "sessions": ("show the sessions and what each has loaded", "mcpd sessions"),
    "allow": ("let a session call a tool that its user is asked about", "mcpd allow 4 filesystem/write_file"),
    "unload": ("take a loaded tool away from a session", "mcpd unload 4 git/git_push"),
    "tools": ("show the categories, their tools, and what one takes", "mcpd tools git/git_log"),
    "search": ("find tools for a need, best first", "mcpd search read a file"),
    "prompts": ("show the prompts that servers offer, with their arguments", "mcpd prompts"),
    "resources": ("show the resources that servers offer, and templates", "mcpd resources"),
    "call": ("call one tool and print its result", "mcpd call time/get_current_time timezone=UTC"),
    "calls": ("show the calls under way, and the last that have ended", "mcpd calls -f"),
    "cancel": ("end a call that has no answer yet", "mcpd cancel 17"),
    "prompt": ("print the messages of one prompt", "mcpd prompt git/review branch=main"),
    "read": ("print what a resource holds", "mcpd read file:///srv/notes.md"),
    "restart": ("restart one server now", "mcpd restart git"),
    "reload": ("read the configuration again; restart only what changed", "mcpd reload"),
    "disable": ("switch a server, or one of its tools, off", "mcpd disable git/git_push"),
    "enable": ("switch a server or a tool on again", "mcpd enable git"),
    "describe": ("say what a tool does in its server's place", "mcpd describe git/git_log 'Shows commits.'"),
    "refresh": ("have a server list its tools again now", "mcpd refresh git"),
    "lazy": ("show and throw the switches of loading on demand", "mcpd lazy off --profile reader"),
    "summaries": ("the model that shortens descriptions: its state, which one", "mcpd summaries --models"),
    "ui": ("open the console in a browser", "mcpd ui"),
    "token": ("show, make, list or revoke tokens for clients over HTTP", "mcpd token new ci --profile reader"),
    "metrics": ("print what was counted, for Prometheus", "mcpd metrics"),
    "version": ("print the version, and those of what it stands on", "mcpd version --json"),
    "completions": ("print a shell's completions", "mcpd completions bash"),
    "schema": ("print the JSON Schema of the configuration", "mcpd schema > mcpd.schema.json"),
}
"""Each command with what it does and an example; the module `daemon.cli.<command>` implements it."""

GROUPS = {
    "set up": "up import install uninstall add remove login logout service token completions",
    "the daemon": "start stop run connect reload version schema",
    "look": "status doctor check logs events sessions calls metrics ui",
    "use": "tools search prompts resources call prompt read",
    "change": "restart disable enable describe refresh allow unload cancel lazy summaries",
}
"""Headings of the help, each with its commands in order."""

MEANT = {
    **dict.fromkeys(("ls", "ps", "list", "servers", "show", "info", "inspect", "stat", "state"), "status"),
    **dict.fromkeys(("top", "watch"), "status --watch"),
    **dict.fromkeys(("setup", "init", "onboard"), "up"),
    **dict.fromkeys(("open", "console", "dashboard", "web"), "ui"),
    **dict.fromkeys(("rm", "delete", "del"), "remove SERVER"),
    **dict.fromkeys(("config", "validate", "lint", "test"), "check"),
    **dict.fromkeys(("down", "kill", "quit", "exit"), "stop"),
    **dict.fromkeys(("daemon", "serve"), "start"),
    **dict.fromkeys(("log", "tail"), "logs SERVER"),
    **dict.fromkeys(("history", "journal"), "events"),
    **dict.fromkeys(("find", "grep"), "search NEED"),
    **dict.fromkeys(("exec", "invoke"), "call SERVER/TOOL"),
    **dict.fromkeys(("off",), "disable SERVER"),
    **dict.fromkeys(("on",), "enable SERVER"),
    **dict.fromkeys(("auth", "signin"), "login SERVER"),
    **dict.fromkeys(("clients", "connections"), "sessions"),
    **dict.fromkeys(("tokens",), "token list"),
    **dict.fromkeys(("completion",), "completions"),
    **dict.fromkeys(("diagnose", "health"), "doctor"),
}
"""Words that people type as they do elsewhere, each with the command here that does it."""

_ENDING = {"stop", "remove", "uninstall", "logout", "cancel", "unload", "disable"}
"""Commands that end or take something: a word is no misspelling of one unless hardly a letter is wrong."""
_HARDLY_WRONG = 0.87

_MODULES = {"import": "daemon.cli.import_servers", "run": "daemon.main.run"}
"""Commands whose module is another than the one of their name here."""

EX_USAGE = 2
"""Wrong usage, as argparse reports it."""
EX_CONFIG = 78
"""The configuration is faulty (sysexits.h): `run`, `check` and `reload` end with it."""
EX_IOERR = 74
"""The output cannot be written because its disk is full (sysexits.h)."""
EX_INTERRUPTED = 130
"""128 + SIGINT: what a shell reports for a program that Ctrl-C ended."""
EX_PIPE = 141
"""128 + SIGPIPE, likewise: the reader of our output went away (`mcpd status | head -1`)."""

_ENOSPC = 28
"""The value of `errno.ENOSPC`, for a module that imports nothing."""


def main() -> None:
    """The console script. Ends the interpreter with the command's exit status."""
    try:
        _occupy_stdout()
        status = _dispatch(sys.argv[1:])
        # Here, not at the interpreter's exit, where a reader that left would be reported with a traceback.
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        status = EX_PIPE
    except OSError as error:
        if error.errno != _ENOSPC:
            raise
        _forget_stdout()
        print(f"mcpd: cannot write the output: {error.strerror}", file=sys.stderr)
        status = EX_IOERR
    except KeyboardInterrupt:
        status = EX_INTERRUPTED
    sys.exit(status)


def _dispatch(argv: list[str]) -> int:
    command = argv[0] if argv else "--help"
    if not argv and _asked_by_shell():
        from daemon.cli.completing import complete  # noqa: PLC0415 - as below

        return complete()
    if command in COMMANDS:
        # By its full name: `python -m daemon` comes here as well.
        import importlib  # noqa: PLC0415 - see the module's docstring

        _never_fail_to_print()
        if command == "run":
            _collect_nothing()
        status: int = importlib.import_module(module_of(command)).main(argv[1:])
        return status
    if command == "help" and len(argv) > 1:
        return _dispatch([argv[1], "--help"] if argv[1] != "help" else ["--help"])
    if command in {"-h", "--help", "help"}:
        print(overview())
        return 0
    if command in {"-V", "--version"}:
        from daemon import __version__  # noqa: PLC0415

        print(f"mcpd {__version__}")
        return 0
    print(_unknown(command), file=sys.stderr)
    return EX_USAGE


def module_of(command: str) -> str:
    """The module that implements a command."""
    return _MODULES.get(command, f"daemon.cli.{command}")


def _asked_by_shell() -> bool:
    """Whether a shell runs this to complete a command line (`mcpd completions`)."""
    import os  # noqa: PLC0415 - as above; only `mcpd` alone comes here

    return "_ARGCOMPLETE" in os.environ


def _collect_nothing() -> None:
    """Put off collecting garbage until the daemon serves (`main.lifetime`): it takes an eighth of a start."""
    import gc  # noqa: PLC0415 - as above

    gc.disable()


def overview() -> str:
    """The help text: all commands by what they are for, with one line and an example each."""
    lines = ["usage: mcpd COMMAND ...", "", "The init system for MCP servers.", ""]
    width = max(map(len, COMMANDS)) + 1
    groups = {heading: names.split() for heading, names in GROUPS.items()}
    # A command that is not sorted in is still found.
    groups["more"] = [each for each in COMMANDS if not any(each in names for names in groups.values())]
    for heading, names in groups.items():
        lines += [f"{heading}:"] if names else []
        for command in names:
            purpose, example = COMMANDS[command]
            lines += [f"  {command:<{width}}{purpose}", f"  {'':<{width}}$ {example}"]
        lines += [""] if names else []
    lines += ["`mcpd help COMMAND` tells more; `mcpd --version` prints the version."]
    return "\n".join(lines)


def _unknown(command: str) -> str:
    if command.startswith("-"):
        return f"mcpd: {command!r} is no command: options follow one, as in `mcpd status {command}`"
    import difflib  # noqa: PLC0415 - needed only after a mistake

    harmless = [each for each in COMMANDS if each not in _ENDING]
    near = [MEANT[command]] if command in MEANT else difflib.get_close_matches(command, harmless, n=1)
    near = near or difflib.get_close_matches(command, _ENDING, n=1, cutoff=_HARDLY_WRONG)
    hint = f"did you mean `mcpd {near[0]}`?" if near else "`mcpd help` lists the commands by their purpose"
    return f"mcpd: unknown command {command!r}: {hint}"


def _never_fail_to_print() -> None:
    """Escape what the terminal's encoding lacks, and lone surrogates: a tool's name must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _occupy_stdout() -> None:
    """Give a stdout that was closed (`>&-`) something that takes what is printed and drops it."""
    if sys.stdout is None:
        sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until we end


def _forget_stdout() -> None:
    """Point stdout at /dev/null, so that what is still buffered for a reader that left is dropped."""
    import os  # noqa: PLC0415

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
