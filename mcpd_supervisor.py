"""The console script `mcpd`: runs the package `daemon`, or reports that another program took its name.

python-daemon (PyPI) has a package `daemon`, too. If both are installed in one environment, one of them cannot
work; this module, whose name is unique, can then say so.
"""

import sys

OWN = "mcpd"
"""The value of `daemon.__program__` in mcpd's package."""


def main() -> None:
    """Run the command line, and end the interpreter with its exit status."""
    try:
        import daemon  # noqa: PLC0415 - it may be anybody's
    except ImportError:
        sys.exit(_clash("which is there"))
    if getattr(daemon, "__program__", None) != OWN:
        sys.exit(_clash(f"in {', '.join(daemon.__path__)}"))
    from daemon.cli import main as run  # noqa: PLC0415 - it is mcpd's

    run()


def _clash(where: str) -> str:
    return (
        f"mcpd: the Python package `daemon` {where} is another program's (python-daemon's?), not mcpd's:"
        " install mcpd in an environment of its own, as `pipx install mcpd-supervisor` or `uv tool install"
        " mcpd-supervisor` does"
    )
