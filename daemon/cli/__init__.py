"""The `mcpd` command. It imports only the module of its first argument, besides `sys` and the table."""

import sys

from daemon.cli.table import COMMANDS, ENDING, help_table, purposes
from daemon.cli.table import EX_CONFIG as EX_CONFIG
from daemon.cli.table import implementation as implementation

EX_USAGE = 2
EX_IOERR = 74
"""The output's disk is full (sysexits.h)."""
EX_INTERRUPTED = 130
"""128 + SIGINT, as shells report an interrupted command."""
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
    if command in COMMANDS:
        _never_fail_to_print()
        if command in {"run", "start"}:
            import gc  # noqa: PLC0415 - as above

            # Collecting garbage takes an eighth of a start; `main.lifetime` enables it again.
            gc.disable()
        status: int = implementation(command).main(argv[1:])
        return status
    if command == "help" and len(argv) > 1:
        asked, *_ = _meant(argv[1], "aliases", "synonyms") or argv[1:]
        return _dispatch([asked, "--help"] if asked != "help" else ["--help"])
    if command in {"-h", "--help", "help"}:
        print(overview())
    elif command in {"-V", "-v", "--version"}:
        from daemon import version  # noqa: PLC0415

        print(f"mcpd {version()}")
    elif meant := _meant(command, "aliases"):
        return _dispatch([meant[0], *argv[1:], *meant[1:]])
    else:
        print(_unknown(command), file=sys.stderr)
        return EX_USAGE
    return 0


def _meant(word: str, *tables: str) -> list[str]:
    words = help_table()
    return next(
        (line.split() for each in tables for line, others in words[each].items() if word in others.split()), []
    )


def overview() -> str:
    """The help text: all commands by purpose, each with one line and an example."""
    import shutil  # noqa: PLC0415 - as above
    import textwrap  # noqa: PLC0415 - as above

    lines = ["usage: mcpd COMMAND ...", "", "The init system for MCP servers.", ""]
    known = purposes(help_table())
    width, columns = max(map(len, known)) + 1, shutil.get_terminal_size().columns
    for heading, names in help_table()["groups"].items():
        lines.append(f"{heading}:")
        for command in names.split():
            purpose, example = known[command]
            rest = " " * (width + 2)
            line = f"  {command:<{width}}{purpose}"
            lines += [*textwrap.wrap(line, columns, subsequent_indent=rest), f"{rest}$ {example}"]
        lines.append("")
    lines += ["`mcpd help COMMAND` tells more, `mcpd -V` the version."]
    return "\n".join(lines)


def _unknown(command: str) -> str:
    if command.startswith("-"):
        return f"mcpd: {command!r} is not a command: options come after one, as in `mcpd status {command}`"
    import difflib  # noqa: PLC0415 - needed only after a mistake

    known, hint = purposes(help_table()), "`mcpd help` lists the commands by their purpose"
    if meant := _meant(command, "synonyms"):
        hint = f"`mcpd {' '.join(meant)}`, perhaps: {known[meant[0]][0]}"
    # A person who mistypes may not be led to lose something.
    elif near := difflib.get_close_matches(command, [each for each in known if each not in ENDING], n=1):
        hint = f"did you mean `mcpd {near[0]}`?"
    return f"mcpd: unknown command {command!r}: {hint}"


def _never_fail_to_print() -> None:
    """Have stdout and stderr escape characters that the terminal's encoding lacks, and lone surrogates."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _occupy_stdout() -> None:
    """Replace a closed stdout (`>&-`) with /dev/null."""
    if sys.stdout is None:
        sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open until we end


def _forget_stdout() -> None:
    """Point stdout at /dev/null, which drops the output buffered for a reader that has left."""
    import os  # noqa: PLC0415 - as above; only `mcpd` alone comes here

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
