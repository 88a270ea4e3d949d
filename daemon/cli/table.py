"""The table of commands. Imports nothing, since every command would pay for it: strings name the modules."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EX_CONFIG = 78
"""The configuration is faulty (sysexits.h): exit status of `run`, `check` and `reload`."""

COMMANDS = {
    "up": ("set everything up: import, service, install; asks first", "mcpd up"),
    "import": ("find the servers of clients on this machine, and add them", "mcpd import --write"),
    "install": ("put mcpd into a client's configuration", "mcpd install claude-code"),
    "uninstall": ("take mcpd out of a client's configuration again", "mcpd uninstall claude-code"),
    "add": ("add a server to the configuration", "mcpd add time -- uvx mcp-server-time"),
    "remove": ("remove a server from the configuration", "mcpd remove time"),
    "pin": ("pin a server's package to its newest version", "mcpd pin time"),
    "lock": ("write what the servers offer as a team's approval, or check it", "mcpd lock --check"),
    "login": ("log in to a server that wants OAuth", "mcpd login notion"),
    "logout": ("end a login and forget it", "mcpd logout notion"),
    "service": ("install, remove or show the systemd user service", "mcpd service install"),
    "start": ("start the daemon in the background, if none runs", "mcpd start"),
    "stop": ("stop the daemon that runs in the background", "mcpd stop"),
    "run": ("run the daemon in the foreground", "mcpd run --config ~/.config/mcpd/mcpd.json"),
    "connect": ("bridge an MCP client on stdin and stdout to the daemon", "mcpd connect --profile default"),
    "status": ("show every server: state, reason, numbers", "mcpd status --watch"),
    "check": ("validate a configuration without starting anything", "mcpd check mcpd.json"),
    "doctor": ("find faults, and the remedy for each", "mcpd doctor"),
    "logs": ("show a server's stderr", "mcpd logs git -f"),
    "events": ("show the history of servers and sessions", "mcpd events git --since 1h"),
    "audit": ("show who did what and who allowed it, or verify the record", "mcpd audit git --since yesterday"),
    "sessions": ("show the sessions and their loaded tools", "mcpd sessions"),
    "allow": ("let a session call a tool without asking its user", "mcpd allow 4 filesystem/write_file"),
    "unload": ("unload a tool from a session", "mcpd unload 4 git/git_push"),
    "tools": ("show categories and tools, or one tool in full", "mcpd tools git/git_log"),
    "search": ("find tools for a need, best first", "mcpd search read a file"),
    "prompts": ("show the prompts of servers", "mcpd prompts"),
    "resources": ("show the resources and templates of servers", "mcpd resources"),
    "call": ("call one tool and print its result", "mcpd call time/get_current_time timezone=UTC"),
    "calls": ("show calls in flight, and the last ended ones", "mcpd calls -f"),
    "cancel": ("cancel a call in flight", "mcpd cancel 17"),
    "prompt": ("print the messages of one prompt", "mcpd prompt git/review branch=main"),
    "read": ("print a resource", "mcpd read file:///srv/notes.md"),
    "restart": ("restart one server now", "mcpd restart git"),
    "reload": ("reload the configuration; restart only what changed", "mcpd reload"),
    "disable": ("switch a server, or one of its tools, off", "mcpd disable git/git_push"),
    "enable": ("switch a server or a tool on again", "mcpd enable git"),
    "approve": ("approve what servers changed, or show it", "mcpd approve --diff git"),
    "sandbox": ("show a server's sandbox, learn what it needs, or look inside", "mcpd sandbox git --learn"),
    "allow-host": ("let a sandboxed server reach a host", "mcpd allow-host github api.github.com"),
    "describe": ("give a tool another description", "mcpd describe git/git_log 'Shows commits.'"),
    "refresh": ("have a server list its tools again", "mcpd refresh git"),
    "lazy": ("show or set the switches of loading on demand", "mcpd lazy off --profile reader"),
    "summaries": ("show or choose the model that shortens descriptions", "mcpd summaries --models"),
    "ui": ("open the console in a browser", "mcpd ui"),
    "token": ("show, make, list or revoke tokens for clients over HTTP", "mcpd token new ci --profile reader"),
    "metrics": ("print metrics in Prometheus' format", "mcpd metrics"),
    "version": ("print the versions of mcpd and its libraries", "mcpd version --json"),
    "completions": ("print a shell's completions", "mcpd completions bash"),
    "schema": ("print the JSON Schema of the configuration", "mcpd schema > mcpd.schema.json"),
}

MODULES = {
    "daemon.cli.local_commands": "up import install uninstall add remove login service start stop check doctor",
    "daemon.cli.lock": "lock pin",
    "daemon.main.run": "run",
    "daemon.cli.connect": "connect",
    "daemon.cli.status": "status",
    "daemon.cli.following": "events logs calls cancel",
    "daemon.cli.audit": "audit",
    "daemon.cli.about": "version schema metrics ui token",
    "daemon.cli.completing": "completions",
    "daemon.cli.sandbox": "sandbox allow-host",
    "daemon.cli.servers": "enable disable approve restart refresh reload logout",
    "daemon.cli.sessions": "sessions allow unload",
    "daemon.cli.settings": "describe lazy summaries",
    "daemon.cli.tools": "tools search",
    "daemon.cli.use": "call prompt prompts resources read",
}
"""Module of each command, which holds a `CommandLine` of that name in capitals, or itself has `main` and
`make_parser` (`connect` and `run`, which must start fast)."""

GROUPS = {
    "set up": "up import install uninstall add remove pin lock login logout service token completions",
    "the daemon": "start stop run connect reload version schema",
    "look": "status doctor check logs events audit sessions calls metrics ui",
    "use": "tools search prompts resources call prompt read",
    "change": "restart disable enable approve sandbox allow-host describe refresh allow unload cancel lazy"
    " summaries",
}

SYNONYMS = {
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
    **dict.fromkeys(("accept", "agree", "trust"), "approve"),
    **dict.fromkeys(("clients", "connections"), "sessions"),
    **dict.fromkeys(("tokens",), "token list"),
    **dict.fromkeys(("completion",), "completions"),
    **dict.fromkeys(("diagnose", "health"), "doctor"),
}
"""Other tools' words for these commands."""

ENDING = {"stop", "remove", "uninstall", "logout", "cancel", "unload", "disable"}
"""Commands that end or remove something: suggested for a typo only above `ENDING_CUTOFF` (difflib's ratio)."""
ENDING_CUTOFF = 0.87


def implementation(command: str) -> "Any":
    """The object with `main(argv)`, which returns the exit status, and `make_parser()`."""
    # By full name, since `python -m daemon` comes here too.
    import importlib  # noqa: PLC0415 - see the module's docstring

    place = next(module for module, commands in MODULES.items() if command in commands.split())
    module = importlib.import_module(place)
    return getattr(module, command.upper().replace("-", "_"), module)
