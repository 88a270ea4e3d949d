"""The last words of programs that stumble over their surroundings, and what helps.

Collected from npm, node, uv, pip, CPython, docker and shells as they speak today; the most telling first.
"""

from __future__ import annotations

from daemon.cli.checkup.rows import Row

_RESTART = "Then `mcpd restart {server}`."
_VARIABLE = r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)"

_TRUSTING = (
    Row(
        r"(?i)CERT_HAS_EXPIRED|certificate has expired|invalid peer certificate: expired",
        "A certificate of what it connects to has expired, or this machine's clock is wrong.",
        "Have it renewed; check `date`.",
    ),
    Row(
        r"(?i)SELF_SIGNED_CERT|self[- ]signed certificate|UNABLE_TO_(?:GET|VERIFY)\w*(?:CERT|SIGNATURE)"
        r"|CERTIFICATE_VERIFY_FAILED|unable to (?:get|verify)[\w ]*(?:certificate|issuer)"
        r"|unknown ?(?:authority|issuer)|invalid peer certificate",
        "It does not trust the certificate of what it connects to: most often of a proxy that reads TLS, whose"
        " authority this program has not been told of.",
        "Name the authority's file in its `env`, since a server gets nothing of the daemon's own variables:"
        " SSL_CERT_FILE for uvx, Python and most others (UV_SYSTEM_CERTS=true has uvx use the system's),"
        " NODE_EXTRA_CA_CERTS for npx and node, REQUESTS_CA_BUNDLE for Python's requests. Then `mcpd reload`.",
    ),
)
"""What it connects to shows a certificate that it does not take; told before what came of that."""

_INSTALLING = (
    Row(
        r"No module named '?mcp\.server\.mcpserver|cannot import name 'MCPServer' from 'mcp\b",
        "It is written for version 2 of MCP's Python SDK, and an older one is installed with it.",
        "Have it use the newer one: with uvx `--with 'mcp>=2'` as the first two of its `args`, else install"
        f" `mcp>=2` where its interpreter finds it. {_RESTART}",
    ),
    Row(
        r"No module named '?mcp\.\w|cannot import name '\w+' from 'mcp['.]"
        r"|'Server' object has no attribute '(?:list_|call_tool|read_resource|get_prompt|request_context)",
        "It is written for version 1 of MCP's Python SDK, and version 2, which lacks what it uses, is installed"
        " with it.",
        "Have it use the older one: with uvx `--with 'mcp<2'` as the first two of its `args`, else install"
        f" `mcp<2` where its interpreter finds it; a newer version of the server may need neither. {_RESTART}",
    ),
    Row(
        r"Cannot find (?:module|package) '([^']+)'|ERR_MODULE_NOT_FOUND",
        "A file or package of node's is missing: {0}",
        "Correct the path in `args`, or install the package (`npm install`) where the server stands."
        f" {_RESTART}",
    ),
    Row(
        r"No module named '?([\w.]+)",
        "A Python module is missing: {0}",
        f"Install it for the interpreter that `command` runs (with uvx: `--with PACKAGE`). {_RESTART}",
    ),
    Row(
        r"npm (?:ERR!|error)(?: code)? E404|npm (?:ERR!|error) 404 .*?'?([@\w][\w./@-]*)?'? is not in|ETARGET",
        "npm's registry has no such package, or not in this version. {0}",
        f"Correct the package's name and version in `args`. {_RESTART}",
    ),
    Row(
        r"npm (?:ERR!|error).*(?:ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ECONNRESET|ENETUNREACH|ENOTCACHED)",
        "npm could not reach its registry.",
        "Bring the network up, or install the package once and start it without npx (or with `npx --offline`).",
    ),
    Row(
        r"npm (?:ERR!|error).*(?:EACCES|EROFS|EPERM)",
        "npm may not write to its cache or its directory.",
        "Give the daemon's user a cache of its own: HOME or npm_config_cache in the server's `env`.",
    ),
    Row(
        r"could not determine executable to run|could not determine which binary",
        "The npm package has no program of that name.",
        f"Name both, as in `npx -y -p PACKAGE PROGRAM`. {_RESTART}",
    ),
    Row(
        r"(?i)because (\S+) was not found in the (?:package )?registry"
        r"|no matching distribution found for (\S+)",
        "The Python package index has no such package, or not in this version: {0}{1}",
        f"Correct the package's name and version in `args`. {_RESTART}",
    ),
    Row(
        r"An executable named `?([\w.-]+)`? is not provided by package",
        "The Python package has no program of that name: {0}",
        f"Name both, as in `uvx --from PACKAGE PROGRAM`. {_RESTART}",
    ),
    Row(
        r"Failed to fetch: `?(\S+?)`?$|error sending request for url \((\S+)\)",
        "The package index cannot be reached: {0}{1}",
        "Bring the network up, or have uvx take what it has (`--offline`), or install the package once.",
    ),
    Row(
        r"(?i)cannot connect to the docker daemon|docker\.sock|docker daemon is not running",
        "Docker's service is not running, or the daemon's user may not use it.",
        "Start it (`systemctl start docker`), or let the user in (group `docker`); the system unit's sandbox"
        " shuts it out.",
    ),
    Row(
        r"(?i)pull access denied|manifest unknown|manifest for \S+ not found|repository does not exist",
        "There is no such image, or one may not have it.",
        f"Correct the image's name and tag in `args`, or `docker login`. {_RESTART}",
    ),
    Row(
        r"Executable doesn't exist at|playwright install",
        "The browser that it drives is not installed.",
        f"`npx playwright install chromium`, as the daemon's user. {_RESTART}",
    ),
    Row(
        r"NODE_MODULE_VERSION|invalid ELF header|wrong ELF class",
        "A native module was built for another version of its runtime, or another processor.",
        f"Install its packages anew (`npm rebuild`). {_RESTART}",
    ),
    Row(
        r"version `(\S+)' not found|error while loading shared libraries: ([^:\s]+)",
        "It was built for another system: the library {0}{1} is missing here.",
        f"Install that library, or a build for this system. {_RESTART}",
    ),
    Row(
        r"(?i)requires? (?:a )?(node(?:\.js)?|python)(?: version)?:? ?([<>=~^v\d][\w.<>=,* -]*)",
        "It wants another version of its runtime: {0} {1}",
        f"Install that version, and write the path of its program as `command`. {_RESTART}",
    ),
)
"""Something is not installed, or cannot be."""

_ASKING = (
    Row(
        rf"{_VARIABLE}\W+(?:environment )?(?:variable )?(?:is |was |are |must be )?"
        r"(?:not (?:set|defined|provided)|required|missing|undefined|set\b|provided)"
        rf"|(?i:missing|required|requires?|provide|set)(?: (?:the|an|your|a|required|following))*"
        rf" (?i:environment |env )?(?i:variables?|vars?)?\W*{_VARIABLE}"
        rf"|KeyError: '{_VARIABLE}'",
        "It wants the environment variable {0}{1}{2}, which it does not get.",
        "A server gets HOME, PATH and a few more, and what its `env` names: add {0}{1}{2} to it, with"
        " ${{{0}{1}{2}}} as the value, then `mcpd reload`.",
    ),
    Row(
        r"(?i)unrecognized (?:arguments?|option):? (.+)"
        r"|(?:unknown|unexpected) (?:option|argument|flag|command):? ['\"`]?"
        r"([^'\"`\s]+)|no such option:? (\S+)|invalid choice: (\S+)|unknown flag: (\S+)",
        "It does not know the argument {0}{1}{2}{3}{4}",
        f"Compare `args` with its --help. {_RESTART}",
    ),
    Row(
        r"(?i)(?:http|status|code|error)\W{0,3}(?:code\W{0,2})?401\b|\b401 unauthorized|bad credentials"
        r"|invalid (?:api[ _-]?key|access token|credentials)|authentication (?:failed|required)"
        r"|incorrect api key|token (?:has |is )?expired",
        "What it signs in to does not take its credentials (401).",
        "Put a valid key into its `env`, then `mcpd reload`.",
    ),
    Row(
        r"(?i)(?:http|status|code|error)\W{0,3}(?:code\W{0,2})?403\b|\b403 forbidden",
        "What it signs in to knows its credentials and refuses them (403).",
        "Give its key the rights that its documentation names.",
    ),
)
"""It is not told what it must know."""

_REACHING = (
    Row(
        r"(?i)(?:EADDRINUSE|address already in use)(?:\D*?(?:[\d.]+|\*|\]|::):(\d+))?",
        "It wants to listen on a port that is taken already. {0}",
        "Another copy may be running (`ss -ltnp` shows who listens): end it, or give this one another port.",
    ),
    Row(
        r"(?i)getaddrinfo \w+ (\S+)|could not resolve host:? ?(\S*)|name or service not known"
        r"|temporary failure in name resolution|no such host",
        "It cannot look up a name; either that is misspelt, or there is no network or name server: {0}{1}",
        "Bring the network up, or correct the address in its `args` or `env`. It is started again by itself.",
    ),
    Row(
        r"(?i)ECONNREFUSED(?: (\S+))?|connection refused",
        "Something that it needs does not listen: {0}",
        "Start that service, or correct its address in `args` or `env`. It is started again by itself.",
    ),
    Row(
        r"ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|(?i:network is unreachable|no route to host|connection timed out)",
        "It does not get through the network to something that it needs.",
        "Check the network, the VPN and the firewall. It is started again by itself.",
    ),
)
"""It does not reach what it needs."""

_HAVING = (
    Row(
        r"(?i)heap out of memory|reached heap limit|out of memory|memoryerror|cannot allocate memory|bad_alloc",
        "It ran out of memory.",
        'Give it less to do, or more: "env": {{"NODE_OPTIONS": "--max-old-space-size=4096"}} for node.',
    ),
    Row(
        r"(?i)file watchers|inotify",
        "The kernel's limit of watched files is reached.",
        "`sysctl fs.inotify.max_user_watches=524288` (and max_user_instances), or have it watch less.",
    ),
    Row(
        r"ENOSPC|(?i:no space left on device|disk quota exceeded)",
        "The disk is full.",
        f"Make room (`df -h`, and `df -i` for files). {_RESTART}",
    ),
    Row(
        r"EMFILE|(?i:too many open files)",
        "It has as many files open as it may.",
        "Raise the limit: LimitNOFILE= in the unit, or `ulimit -n` where `mcpd run` is started.",
    ),
    Row(
        r"EROFS|(?i:read-only file system)",
        "It wants to write where nothing can be written: the system unit's sandbox lets servers write only to"
        " their state and cache.",
        "Allow the directory (ReadWritePaths= in the unit), or run mcpd as the user's unit.",
    ),
    Row(
        r"(?:^|: )(?:\d+: )?([\w./@+-]+): (?:command )?not found"
        # The C locale quotes with ', others with U+2018 and U+2019.
        r"|env: ['\u2018]?([^'\u2019:\s]+)['\u2019]?: No such file"
        r"|exec: \"?([^\"\s:]+)\"?: .*not found|spawn (\S+) ENOENT",
        "A program that it starts is missing: {0}{1}{2}{3}",
        "Install it, or put its directory on the PATH: a server's PATH is the daemon's, or that of its `env`."
        f" {_RESTART}",
    ),
    Row(
        r"ENOENT: no such file or directory, \w+ '([^']+)'|No such file or directory: '([^']+)'"
        r"|can't open file '([^']+)'",
        "A file or directory is missing: {0}{1}{2}",
        "Make it, or correct the path in `args` or `env`; relative paths begin at `cwd`, or at home without it."
        f" {_RESTART}",
    ),
    Row(
        r"EACCES: permission denied, \w+ '([^']+)'|Permission denied: '([^']+)'|EACCES|(?i:permission denied)",
        "It may not use a file, a directory or a port: {0}{1}",
        f"Give the daemon's user the right to it, or name another. {_RESTART}",
    ),
    Row(
        r"(?i)running as root without --no-sandbox|no usable sandbox",
        "Its browser does not start without a sandbox of its own.",
        "Run mcpd as an ordinary user, outside the system unit's sandbox; or pass --no-sandbox to the browser.",
    ),
)
"""The machine does not give it what it wants."""

_CRASHING = (
    Row(
        r"SyntaxError: (.+)",
        "Its program cannot be read by this runtime: {0}",
        "A newer version of node or Python is wanted, or the file is damaged: update the runtime, or"
        " reinstall.",
    ),
    Row(
        r"^(?:Uncaught |\[\w+\] )?((?:\w+\.)*\w*(?:Error|Exception)(?: \[\w+\])?: .+)",
        "It ended on an error that it did not expect: {0}",
        "Correct what the error names, if it is yours to correct; else update the server. `mcpd logs {server}`"
        " has the rest.",
    ),
    Row(
        r"panicked at (.+)|^panic: (.+)",
        "It crashed on a fault of its own: {0}{1}",
        "Update the server, or tell those who make it. `mcpd logs {server}` has the rest.",
    ),
    Row(
        r"^(?i:usage): (.+)",
        "It printed how it wants to be called: {0}",
        f"Correct `args`. {_RESTART}",
    ),
)
"""It says itself that it failed, and no more."""

WORDS = (*_TRUSTING, *_INSTALLING, *_ASKING, *_REACHING, *_HAVING, *_CRASHING)
"""All of them."""
