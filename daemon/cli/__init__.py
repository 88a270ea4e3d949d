"""The `mcpd` command: imports only the module that implements its first argument.

`mcpd connect` starts with every window of every agent, `mcpd status` in every prompt: this module imports
nothing but `sys` and the table.
"""

import sys

from daemon.cli.table import ENDING, ENDING_CUTOFF, MODULES, help_table, purposes
from daemon.cli.table import EX_CONFIG as EX_CONFIG
from daemon.cli.table import implementation as implementation

EX_USAGE = 2
EX_IOERR = 74
"""The disk of the output is full (sysexits.h)."""
EX_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
EX_PIPE = 141
"""128 + SIGPIPE: the reader of the output has left (`mcpd status | head -1`)."""

_ENOSPC = 28
"""`errno.ENOSPC`, without the import."""


def main() -> None:
    """Run the console script, and exit with the command's status."""
    try:
        _occupy_stdout()
        status = _dispatch(sys.argv[1:])
        # At the interpreter's exit, a reader that has left would cause a traceback.
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
    if not argv:
        import os  # noqa: PLC0415 - as above; only `mcpd` alone comes here

        # A shell completes a command line (`mcpd completions`).
        if "_ARGCOMPLETE" in os.environ:
            from daemon.cli.completing import complete  # noqa: PLC0415 - as above

            return complete()
    if command in " ".join(MODULES.values()).split():
        _never_fail_to_print()
        if command in {"run", "start"}:
            import gc  # noqa: PLC0415 - as above

            # Collecting garbage takes an eighth of a start; `main.lifetime` enables it again.
            gc.disable()
        status: int = implementation(command).main(argv[1:])
        return status
    if command == "help" and len(argv) > 1:
        return _dispatch([argv[1], "--help"] if argv[1] != "help" else ["--help"])
    if command in {"-h", "--help", "help"}:
        print(overview())
        return 0
    if command in {"-V", "--version"}:
        from daemon import version  # noqa: PLC0415

        print(f"mcpd {version()}")
        return 0
    print(_unknown(command), file=sys.stderr)
    return EX_USAGE


def overview() -> str:
    """The help text: every command by purpose, with one line and an example."""
    lines = ["usage: mcpd COMMAND ...", "", "The init system for MCP servers.", ""]
    table = help_table()
    told = purposes(table)
    width = max(map(len, told)) + 1
    for heading, names in table["groups"].items():
        lines.append(f"{heading}:")
        for command in names.split():
            purpose, example = told[command]
            lines += [f"  {command:<{width}}{purpose}", f"  {'':<{width}}$ {example}"]
        lines.append("")
    lines += ["`mcpd help COMMAND` tells more; `mcpd --version` prints the version."]
    return "\n".join(lines)


def _unknown(command: str) -> str:
    if command.startswith("-"):
        return f"mcpd: {command!r} is no command: options follow one, as in `mcpd status {command}`"
    import difflib  # noqa: PLC0415 - needed only after a mistake

    table = help_table()
    harmless = [each for each in purposes(table) if each not in ENDING]
    near = [known for known, others in table["synonyms"].items() if command in others.split()]
    near = near or difflib.get_close_matches(command, harmless, n=1)
    near = near or difflib.get_close_matches(command, ENDING, n=1, cutoff=ENDING_CUTOFF)
    hint = f"did you mean `mcpd {near[0]}`?" if near else "`mcpd help` lists the commands by their purpose"
    return f"mcpd: unknown command {command!r}: {hint}"


def _never_fail_to_print() -> None:
    """Escape characters that the terminal's encoding lacks, and lone surrogates."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _occupy_stdout() -> None:
    """Replace a closed stdout (`>&-`) with /dev/null."""
    if sys.stdout is None:
        sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until we end


def _forget_stdout() -> None:
    """Point stdout at /dev/null: drops output that is buffered for a reader that has left."""
    import os  # noqa: PLC0415 - as above; only `mcpd` alone comes here

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
