"""The console script `mcpd`: runs the package `daemon`, or says that another program's stands in its place.

python-daemon (PyPI) has a package of that name, too. Where both are installed in one environment, one of them
cannot work, and this module, which has a name of its own, is what is left to say so.
"""

import sys

OWN = "mcpd"
"""What `daemon.__program__` is, if the package is mcpd's."""


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
