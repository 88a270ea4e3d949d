"""`mcpd completions`: prints what makes a shell complete mcpd's command lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.options import parser

if TYPE_CHECKING:
    import argparse

SHELLS = ("bash", "zsh", "fish")
"""The shells that argcomplete's protocol is spoken by."""


def main(argv: list[str]) -> int:
    """Print the script. Returns 0; 2: usage."""
    options = _parser().parse_args(argv)
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - not for `--help`

    print(shellcode(["mcpd"], shell=options.shell).strip())
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "completions",
        "Print a script that makes a shell complete mcpd's command lines: commands, options and, from the"
        " daemon that runs, the names of servers, tools, prompts, resources, sessions and profiles. The"
        " examples are lines for ~/.bashrc, ~/.zshrc (below `compinit`) and ~/.config/fish/config.fish.",
        examples=(
            'eval "$(mcpd completions bash)"',
            'eval "$(mcpd completions zsh)"',
            "mcpd completions fish | source",
        ),
        exits={0: "printed"},
        reaches=False,
    )
    made.add_argument("shell", choices=SHELLS, help="for which shell")
    return made
