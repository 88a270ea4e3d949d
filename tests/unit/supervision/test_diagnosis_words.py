"""Last words of real programs, and what is said to each."""

from __future__ import annotations

import re

import pytest

from daemon.causes import Cause, Reason, Remedy
from daemon.supervision.lifecycle import by_words, table
from tests.unit.supervision.test_diagnosis import read_well

CASES = [
    ("Error: Cannot find module '/srv/mcp/index.js'", "/srv/mcp/index.js", "npm install"),
    ("  Caused by: invalid peer certificate: UnknownIssuer", "proxy that reads TLS", "UV_SYSTEM_CERTS=true"),
    ("  Caused by: invalid peer certificate: Expired", "expired", "`date`"),
    ("npm error code UNABLE_TO_VERIFY_LEAF_SIGNATURE", "does not trust", "NODE_EXTRA_CA_CERTS"),
    ("npm error request to https://r/x failed, reason: unable to get local issuer certificate",
     "does not trust", "`env`"),
    ("x509: certificate signed by unknown authority", "does not trust", "SSL_CERT_FILE"),
    ("ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed",
     "version 1 of MCP's Python SDK", "`--with 'mcp<2'`"),
    ("ImportError: cannot import name 'McpError' from 'mcp.shared.exceptions' (/x/mcp/shared/exceptions.py)",
     "version 1", "install `mcp<2`"),
    ("ImportError: cannot import name 'McpError' from 'mcp' (/x/mcp/__init__.py)", "version 1", "`mcp<2`"),
    ("AttributeError: 'Server' object has no attribute 'list_tools'", "version 1", "`mcp<2`"),
    ("ModuleNotFoundError: No module named 'mcp.server.mcpserver'", "version 2", "`--with 'mcp>=2'`"),
    ("ModuleNotFoundError: No module named 'mcp'", "missing: mcp", "--with PACKAGE"),
    ("ModuleNotFoundError: No module named 'psycopg2'", "psycopg2", "--with"),
    ("/usr/bin/python3: No module named mcp_server_gti", "mcp_server_gti", "--with"),
    ("npm ERR! code E404", "no such package", "`args`"),
    ("npm error 404  '@x/mcp@9.9.9' is not in this registry.", "@x/mcp@9.9.9", "`args`"),
    ("npm ERR! code ETARGET", "not in this version", "`args`"),
    ("npm error network request to https://r/x failed: getaddrinfo ENOTFOUND r", "registry", "--offline"),
    ("npm error code EACCES", "may not write", "npm_config_cache"),
    ("npm error could not determine executable to run", "no program of that name", "npx -y -p"),
    ("  ╰─▶ Because mcp-server-gti was not found in the package registry and you require", "mcp-server-gti",
     "`args`"),
    ("ERROR: No matching distribution found for mcp-gti==1", "mcp-gti==1", "`args`"),
    ("  ╰─▶ Because there is no version of mcp-server-time==99.1 and you require mcp-server-time==99.1, we can",
     "mcp-server-time==99.1", "`args`"),
    ("ERROR:mcp_server_git.server:/tmp is not a valid Git repository", "no Git repository: /tmp.", "git init"),
    ("Warning: Cannot access directory /srv/data, skipping", "is missing: /srv/data.", "correct the path"),
    ("An executable named `gti` is not provided by package `mcp-server-git`.", "gti", "uvx --from"),
    ("error: Failed to fetch: `https://pypi.org/simple/x/`", "https://pypi.org/simple/x/", "--offline"),
    ("docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "Docker's service",
     "systemctl start docker"),
    ("docker: Error response from daemon: pull access denied for x/y", "no such image", "docker login"),
    ("browserType.launch: Executable doesn't exist at /home/me/.cache/ms-playwright", "browser", "playwright"),
    ("was compiled against a different Node.js version using NODE_MODULE_VERSION 108.", "native",
     "npm rebuild"),
    ("/opt/s: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /opt/s)", "GLIBC_2.38", "build for"),
    ("/opt/s: error while loading shared libraries: libpq.so.5: cannot open", "libpq.so.5", "library"),
    ("error: this package requires Node.js >=22.19", "Node.js >=22.19", "`command`"),
    ("Error: GITHUB_TOKEN environment variable is not set",
     "GITHUB_TOKEN", "${GITHUB_TOKEN}"),
    ("Missing required environment variable: NOTION_API_KEY", "NOTION_API_KEY", "`env`"),
    ("Please set the BRAVE_API_KEY", "BRAVE_API_KEY", "mcpd reload"),
    ("KeyError: 'SLACK_BOT_TOKEN'", "SLACK_BOT_TOKEN", "`env`"),
    ("server.py: error: unrecognized arguments: --prot 3", "--prot 3", "--help"),
    ("ls: unrecognized option '--stdo'", "'--stdo'", "--help"),
    ("error: unknown option '--stdo'", "--stdo", "--help"),
    ("Error: No such option: --stdo", "--stdo", "--help"),
    ("AxiosError: Request failed with status code 401", "(401)", "valid key"),
    ("openai.AuthenticationError: Incorrect API key provided", "(401)", "valid key"),
    ("HTTP 403 Forbidden", "(403)", "rights"),
    ("Error: listen EADDRINUSE: address already in use :::3000", "3000", "ss -ltnp"),
    ("OSError: [Errno 98] Address already in use", "taken already", "ss -ltnp"),
    ("Error: CERT_HAS_EXPIRED", "expired", "`date`"),
    ("Error: self-signed certificate in certificate chain", "does not trust", "NODE_EXTRA_CA_CERTS"),
    ("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED]", "does not trust", "SSL_CERT_FILE"),
    ("Error: getaddrinfo ENOTFOUND db.internal", "db.internal", "network"),
    ("socket.gaierror: [Errno -2] Name or service not known", "look up", "network"),
    ("Error: connect ECONNREFUSED 127.0.0.1:5432", "127.0.0.1:5432", "Start that service"),
    ("connect ETIMEDOUT 10.0.0.1:443", "network", "firewall"),
    ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "memory",
     "max-old-space-size"),
    ("Error: ENOSPC: System limit for number of file watchers reached", "watched files", "sysctl"),
    ("OSError: [Errno 28] No space left on device", "disk is full", "df -h"),
    ("OSError: [Errno 24] Too many open files", "files open", "LimitNOFILE"),
    ("Error: EROFS: read-only file system, mkdir '/home/me/.x'", "nothing can be written", "ReadWritePaths"),
    ("sh: 1: uvx: not found", "missing: uvx.", "PATH"),
    ("bash: line 1: node: command not found", "missing: node.", "PATH"),
    ("/usr/bin/env: 'node': No such file or directory", "missing: node.", "PATH"),
    ("/usr/bin/env: \u2018node\u2019: No such file or directory", "missing: node.", "PATH"),
    ("Error: spawn chrome ENOENT", "missing: chrome.", "PATH"),
    ('exec: "git": executable file not found in $PATH', "missing: git.", "PATH"),
    ("Error: ENOENT: no such file or directory, open '/srv/notes'", "/srv/notes", "`cwd`"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'x.db'", "x.db", "`cwd`"),
    ("python3: can't open file '/srv/s.py': [Errno 2] No such file or directory", "/srv/s.py", "at home"),
    ("PermissionError: [Errno 13] Permission denied: '/srv/x'", "/srv/x", "right"),
    ("mkdir: cannot create directory: Permission denied", "may not use", "right"),
    ("[1:1] Running as root without --no-sandbox is not supported.", "sandbox", "--no-sandbox"),
    ("SyntaxError: Unexpected token '?'", "Unexpected token", "newer version"),
    ("pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings",
     "1 validation error", "mcpd logs git"),
    ("TypeError [ERR_X]: bad", "TypeError [ERR_X]: bad", "update"),
    ("thread 'main' panicked at src/main.rs:5:10:", "src/main.rs:5:10", "Update"),
    ("panic: runtime error: index out of range", "index out of range", "Update"),
    ("Usage: mcp-server [OPTIONS] COMMAND", "mcp-server [OPTIONS]", "`args`"),
]  # fmt: skip


def told(*stderr: str) -> Remedy:
    found = by_words("git", Reason("", Cause.EXITED, {"status": 1}), stderr).remedy
    assert found is not None
    assert found.by_words
    return found


@pytest.mark.parametrize(("said", "happened", "helps"), CASES)
def test_what_a_program_said_last_is_explained(said: str, happened: str, helps: str) -> None:
    found = told(said)
    assert happened in found.happened
    assert helps in found.helps
    read_well(found)


def test_every_pattern_is_the_first_that_fits_one_of_the_cases() -> None:
    patterns = [re.compile(entry["pattern"]) for entry in table("words")["words"]]
    first = {next(n for n, pattern in enumerate(patterns) if pattern.search(said)) for said, _, _ in CASES}
    assert first == set(range(len(patterns)))


def test_whom_a_proxy_reads_along_is_told_of_it_and_not_to_bring_the_network_up() -> None:
    found = told(
        "error: Failed to fetch: `https://pypi.org/simple/mcp-server-time/`",
        "  Caused by: error sending request for url (https://pypi.org/simple/mcp-server-time/)",
        "  Caused by: client error (Connect)",
        "  Caused by: invalid peer certificate: UnknownIssuer",
    )
    assert "certificate" in found.happened
    assert "network" not in found.helps
