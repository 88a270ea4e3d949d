"""Exit statuses, signals and silences that nothing more is known about, and what helps.

Sources: signal(7), sysexits.h; 128+n is how a shell reports that signal n ended what it ran.
"""

from __future__ import annotations

from daemon.cli.checkup.rows import Row

_SEE = "See what it wrote (`mcpd logs {server}`)"

ENDINGS = (
    Row(
        r"killed by SIGKILL|exited with status 137",
        "It was killed outright (SIGKILL): most often by the kernel, because memory ran out, else by somebody.",
        "`journalctl -k | grep -i 'killed process'` tells. Give it less to do, or machine and unit more"
        " memory.",
    ),
    Row(
        r"killed by SIG(?:SEGV|BUS)|exited with status (?:139|135)",
        "It crashed on a bad memory access (SIGSEGV): a fault in its native code, or a native module for"
        " another version.",
        "Update or reinstall it and its runtime; `coredumpctl` may know more.",
    ),
    Row(
        r"killed by SIG(?:ABRT|TRAP)|exited with status (?:134|133)",
        "It gave up by itself (SIGABRT): a failed assertion, or memory that its runtime did not get.",
        f"{_SEE}; update it, or give it more memory.",
    ),
    Row(
        r"killed by SIG(?:ILL|FPE)|exited with status (?:132|136)",
        "It met an instruction that this processor cannot carry out.",
        "Install a build for this processor.",
    ),
    Row(
        r"killed by SIGSYS|exited with status 159",
        "It made a system call that its sandbox forbids (SIGSYS).",
        "Relax SystemCallFilter= of the unit, or run it under the user's unit, which has no sandbox.",
    ),
    Row(
        r"killed by SIG(?:TERM|INT|HUP|QUIT)|exited with status (?:143|130|129|131)",
        "Somebody told it to stop: a signal that mcpd did not send.",
        "See who: a script, another supervisor, a shutdown. It is started again by itself.",
    ),
    Row(
        r"killed by SIGPIPE|exited with status 141",
        "It wrote to something that was no longer there (SIGPIPE).",
        f"{_SEE}. It is started again by itself.",
    ),
    Row(
        r"killed by SIG(?:XCPU|XFSZ)|exited with status (?:152|153)",
        "It took more processor time, or wrote a larger file, than its limits allow.",
        "Raise LimitCPU= or LimitFSIZE= of the unit, or `ulimit` where `mcpd run` is started.",
    ),
    Row(
        r"killed by (\S+)",
        "A signal ended it: {0}.",
        f"{_SEE}, and signal(7). It is started again by itself.",
    ),
    Row(
        r"exited with status 0\b|^it ended$",
        "It ended by itself and calls that a success; an MCP server stays until its stdin is closed.",
        "Check `args`: it may have printed its help or version, or want a word such as `serve` or `--stdio`.",
    ),
    Row(
        r"exited with status 126",
        "A shell found the program but may not run it (exit status 126).",
        "`chmod +x` the program that `command` starts in the end. Then `mcpd restart {server}`.",
    ),
    Row(
        r"exited with status 78",
        "The program says that its own configuration is wrong (exit status 78, EX_CONFIG).",
        "Read what it wrote (`mcpd logs {server}`) and correct its arguments, variables or files."
        " Then `mcpd restart {server}`.",
    ),
    Row(
        r"exited with status 127",
        "A shell did not find the program that it was to run (exit status 127).",
        "Install it, or write its absolute path; a server's PATH is the daemon's, or that of its `env`."
        " Then `mcpd restart {server}`.",
    ),
    Row(
        r"exited with status (?:2|64)\b",
        "It does not understand its command line (exit status 2).",
        f"Compare `args` with its --help. {_SEE}.",
    ),
    Row(
        r"exited with status 125\b",
        "The container runtime did not start the container (exit status 125).",
        "Try the same command in a shell: an option, the image or the runtime's service is at fault.",
    ),
    Row(
        r"exited with status 101\b",
        "It panicked: a fault of its own (exit status 101 is Rust's).",
        f"{_SEE}; update it.",
    ),
    Row(
        r"exited with status (\d+)",
        "It failed with exit status {0}.",
        f"{_SEE}, or run its command in a shell: what is missing there is missing here, too.",
    ),
    Row(
        r"no answer to initialize within (\S+) s",
        "It was started but said nothing in MCP for {0} s.",
        "Is it an MCP server on stdio (some want a word such as `--stdio`)? If it is slow to start, raise"
        " `timeouts.initialize`, or `timeouts.firstInitialize` where npx, uvx or docker must download first.",
    ),
    Row(
        r"initialize was refused: (.+)",
        "It refused the handshake: {0}",
        f"{_SEE}; update the server.",
    ),
    Row(
        r"the connection (?:was )?(?:lost|closed)|closed the connection|writing failed|reading failed",
        "It hung up without a word.",
        f"{_SEE}. It is tried again by itself.",
    ),
)
"""The most telling first."""
