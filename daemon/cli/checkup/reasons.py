"""mcpd's own sentences about a run that ended (`transports/`, `actors.upstream`), and what helps."""

from __future__ import annotations

from daemon.cli.checkup.rows import Row

_RESTART = "Then `mcpd restart {server}`."

STARTING = (
    Row(
        r"command not found: (\S*/.*?)\. Install it",
        "There is no file {0}; or it is a script, and the interpreter that its first line names is missing.",
        f"Install it, or correct `command` or `cwd`; `mcpd doctor` tells which of the two it is. {_RESTART}",
    ),
    Row(
        r"command not found: (.+?)\. Install it",
        "There is no program {0} on the PATH that the server gets.",
        "Install it, or write the path that `command -v {0}` prints in your shell, whose PATH may be longer."
        f" {_RESTART}",
    ),
    Row(
        r"cannot start .+?: its directory (.+): ",
        "The directory that it is to be started in, {0}, is not there or cannot be entered.",
        f"Make it, or correct `cwd` in the configuration. {_RESTART}",
    ),
    Row(
        r"cannot start (.+?): Permission denied",
        "The file {0} is not executable, or a directory on the way to it is closed to the daemon.",
        f"`chmod +x` the file, or let the daemon's user in. {_RESTART}",
    ),
    Row(
        r"cannot start (.+?): Exec format error",
        "{0} is no program for this machine: a script without a first line such as #!/bin/sh, or made for"
        " another processor.",
        "Put its interpreter into `command` and the script into `args`, or install the right build."
        f" {_RESTART}",
    ),
    Row(
        r"cannot start .+?: Too many open files|no pipe for a new process",
        "The daemon has as many files open as it may.",
        "Raise the limit: LimitNOFILE= in the unit, or `ulimit -n` where `mcpd run` is started; `mcpd doctor`"
        " counts how many it needs.",
    ),
    Row(
        r"cannot start .+?: Resource temporarily unavailable",
        "The user or the unit has as many processes as it may.",
        "Raise TasksMax= of the unit or `ulimit -u`, or run fewer servers. It is tried again by itself.",
    ),
    Row(
        r"cannot start .+?: Cannot allocate memory",
        "The machine, or the unit, is out of memory.",
        "Run fewer servers, or give them more (MemoryMax= of the unit). It is tried again by itself.",
    ),
    Row(
        r"cannot start (.+?): (.+)",
        "The system refused to start {0}: {1}.",
        f"Correct `command` and `args` in the configuration. {_RESTART}",
    ),
)
"""What keeps a child from being started."""

SPEAKING = (
    Row(
        r"no common protocol version: the server wants (.+)",
        "The server speaks a version of MCP that mcpd does not: {0}.",
        "Update the server; if it is newer than mcpd, update mcpd.",
    ),
    Row(
        r"the answer to the handshake is no object",
        "It answered the handshake with something that is not MCP.",
        "Is it an MCP server, spoken to over the right transport (`type`)? Update it if it is.",
    ),
    Row(
        r"no answer to (\d+) pings",
        "It stopped answering: {0} pings in a row were not answered.",
        "If it only is slow, raise `timeouts.ping` or `timeouts.missedPings`; if it hangs, `mcpd logs {server}`"
        " may tell in what.",
    ),
    Row(
        r"floods its stdout with what is not MCP",
        "It prints so much on its stdout, where only MCP belongs, that reading it costs everybody's time.",
        "Have it log on stderr, or say less: a quiet or log-level option, without --debug or --verbose.",
    ),
    Row(
        r"over the limit|byte limit",
        "A message was larger than the configuration allows.",
        "Raise `limits.messageBytes` of the server, or ask it for less at once.",
    ),
    Row(
        r"uses (\S+ \S+) of memory, its ceiling is (\S+ \S+) \(limits\.memoryBytes\)",
        "It used {0} of memory, with all that it started; the configuration allows it {1}, so mcpd ended it.",
        "Raise `limits.memoryBytes` if it needs that much; if it grows without end, update it or give it less"
        " to do. It is started again by itself.",
    ),
    Row(
        r"does not read",
        "The server no longer reads what it is sent: it hangs, or works on something for too long.",
        "`mcpd logs {server}` may tell in what. It is started again by itself.",
    ),
    Row(
        r"wants messages sent to another origin: (\S+)",
        "The server asks for its messages to be sent to another address, {0}, which would get your credentials,"
        " too.",
        "Have the server, or the proxy before it, name its own public address; or write that address as the"
        " `url`.",
    ),
    Row(
        r"tools/list was refused",
        "The server is up but refuses to list its tools.",
        "Read its error above and its log (`mcpd logs {server}`): it often lacks a login, a file or a service.",
    ),
    Row(
        r"it lists no tools",
        "The server is up and has no tool to offer, although it has said that it has tools.",
        "If it waits for a login, a file or a service, `mcpd logs {server}` may tell; its `args` may have"
        " switched all of them off. It is asked again by itself.",
    ),
    Row(
        r"declares neither tools nor prompts nor resources",
        "The server is up and offers nothing at all.",
        "Is it the right program, with the right `args`? Update it, or take it out of the configuration.",
    ),
    Row(
        r"of which none can be used; (.+)",
        "The server's tools are not as MCP requires: {0}.",
        "Update the server, or tell those who make it; `mcpd status --json` names every tool with its fault.",
    ),
    Row(
        r"no answer to tools/list|tools/list did not come to its end|no list within",
        "The server is up but does not list its tools in time.",
        "Raise `timeouts.list`, or see what it waits for: `mcpd logs {server}`. It is asked again by itself.",
    ),
    Row(
        r"tools/list repeats the cursor|tools/list has more than",
        "The server's list of tools does not end: a fault of the server's.",
        "Update the server, or tell those who make it.",
    ),
    Row(
        r"mcpd's own fault",
        "mcpd itself made a mistake; the other servers are not touched by it.",
        "Please report it, with the lines of the daemon's log around it. `mcpd restart {server}` tries again.",
    ),
)
"""What ends or spoils a conversation."""

CONNECTING = (
    Row(
        r"certificate of (\S+) is not trusted: .*expired",
        "The certificate of {0} has expired, or this machine's clock is wrong.",
        "Have it renewed; check `date`.",
    ),
    Row(
        r"certificate of (\S+) is not trusted: .*(?:[Hh]ostname mismatch|IP address mismatch|not valid for)",
        "The certificate of {0} was made for another name.",
        "Write the name in `url` that the certificate is for.",
    ),
    Row(
        r"certificate of (\S+) is not trusted",
        "Nobody whom this machine trusts has signed the certificate of {0}.",
        "Add its authority to the system's (update-ca-certificates), or name it in SSL_CERT_FILE in the"
        " daemon's environment.",
    ),
    Row(
        r"(?i)cannot connect to (\S+): .*(?:wrong.version.number|record layer failure|http_request)",
        "{0} does not speak TLS.",
        "Write http:// (or ws://) instead of https:// (wss://), or have the server speak TLS.",
    ),
    Row(
        r"cannot connect to (/.+): No such file",
        "There is no socket {0}: the server is not running, or listens elsewhere.",
        "Start it, or correct `url`. It is tried again by itself.",
    ),
    Row(
        r"cannot connect to (/.+): Permission denied",
        "The daemon's user may not connect to {0}.",
        "Let that user in: the socket's owner, group and mode, and its directories.",
    ),
    Row(
        r"cannot connect to (\S+): Connection refused",
        "Nobody listens on {0}: the server is not running, or listens elsewhere.",
        "Start it, or correct `url`. It is tried again by itself.",
    ),
    Row(
        r"cannot connect to (\S+): .*(?:[Nn]ame or service not known|name resolution|[Nn]o address associated"
        r"|nodename nor servname)",
        "The name in {0} cannot be looked up: it is misspelt, or there is no network or name server.",
        "Correct `url`; try `getent hosts` with the name. It is tried again by itself.",
    ),
    Row(
        r"cannot connect to (\S+): (?:No route to host|Network is unreachable|Host is down)",
        "There is no way through the network to {0}.",
        "Check the network, the VPN and the firewall. It is tried again by itself.",
    ),
    Row(
        r"cannot connect to (\S+): (?:no (?:answer|connection)|Connection timed out|All attempts)"
        r"|^(\S+) did not (?:open|take)",
        "{0}{1} did not answer in time.",
        "Is the server overloaded, or a firewall in between? `timeouts.connect` gives it longer. It is tried"
        " again by itself.",
    ),
    Row(
        r"(\S+) wants credentials that it was not given",
        "{0} wants to know who calls: no credentials were sent, or wrong ones, or they have expired (HTTP"
        " 401).",
        'Write "headers": {{"Authorization": "Bearer ${{TOKEN}}"}} with a valid token, then `mcpd reload`.',
    ),
    Row(
        r"(\S+) does not allow it with these credentials",
        "{0} knows the credentials and refuses them (HTTP 403): they lack a right, or the address is not"
        " allowed.",
        "Give the token the rights that the server's documentation names, then `mcpd restart {server}`.",
    ),
    Row(
        r"(\S+) answered HTTP 3\d\d",
        "{0} sends callers elsewhere, and mcpd carries credentials to no other address.",
        "Write the final address as the `url`.",
    ),
    Row(
        r"(\S+) answered HTTP (404|405|406|410)",
        "{0} has no MCP server at this path, or one that speaks another transport (HTTP {1}).",
        'Check the path of `url` (often /mcp or /sse), and `type`: "http", or "sse" for older servers.',
    ),
    Row(
        r"(\S+) answered HTTP (429|503) .*retry after (\d+) s",
        "{0} has no time for us (HTTP {1}), and has said to come back after {2} s.",
        "Wait: it is tried again by itself then; `mcpd restart {server}` does so at once.",
    ),
    Row(
        r"(\S+) answered HTTP 429",
        "{0} is asked more often than it allows (HTTP 429).",
        "Wait: it is tried again by itself, and later each time.",
    ),
    Row(
        r"(\S+) answered HTTP (5\d\d)",
        "{0}, or a proxy before it, is not well (HTTP {1}).",
        "See to the server if it is yours. It is tried again by itself.",
    ),
    Row(
        r"(\S+) answered HTTP (\d+)",
        "{0} did not take the request (HTTP {1}).",
        "Check `url`, `headers` and `type`; the server's own log says more.",
    ),
    Row(
        r"the server ended the session",
        "The server does not know our session any more: it was started anew, or forgets idle ones.",
        "Nothing: a new session is begun by itself.",
    ),
    Row(
        r"closed the WebSocket with code 1008",
        "The server refuses us (WebSocket close code 1008): credentials are missing or wrong.",
        "Check `headers` and `url`, then `mcpd reload`.",
    ),
    Row(
        r"closed the WebSocket|ended its stream|the connection to \S+ broke",
        "The server, or something in between, hung up.",
        "If it happens often, see the server's log; a proxy may cut idle connections. It is tried again by"
        " itself.",
    ),
    Row(
        r"the url (?:is not valid|must|names no host)",
        "The `url` in the configuration is not one.",
        "Correct it: `mcpd check` says what is wrong, `mcpd reload` puts it in force.",
    ),
)
"""What keeps us from a server that somebody else runs."""

REASONS = (*STARTING, *CONNECTING, *SPEAKING)
"""All of them."""
