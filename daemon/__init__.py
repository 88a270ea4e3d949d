"""mcpd, the init system for MCP servers.

Imports nothing: each agent window starts `mcpd connect`, which must be ready in milliseconds.
"""

__version__ = "0.1.0"

__program__ = "mcpd"
"""Distinguishes this package from python-daemon's of the same name (mcpd_supervisor.py)."""


def version() -> str:
    """The version, with the commit unless it is a release: `0.1.0+g1a2b3c4d`."""
    package = __file__.rpartition("/")[0]
    # `make install` stores the commit in the package, a checkout has it in .git, a release in neither.
    commit = _read(f"{package}/commit") or _commit(package.rpartition("/")[0] + "/.git")
    return f"{__version__}+g{commit[:8]}" if commit else __version__


def program() -> str:
    """Identifies the installed program by its version and this module's source."""
    return f"{version()} {_read(__file__)}"


def _commit(git: str) -> str:
    """The checked-out commit; empty without one, or if it is tagged as this release."""
    # In a worktree .git is a file that names the directory, and references belong to the main checkout.
    git = _read(git).removeprefix("gitdir: ") or git
    common = f"{git}/{_read(f'{git}/commondir') or '.'}"
    head = _read(f"{git}/HEAD")
    commit = _commit_of(common, head.removeprefix("ref: ")) if head.startswith("ref: ") else head
    return commit if commit != _commit_of(common, f"refs/tags/v{__version__}") else ""


def _commit_of(git: str, name: str) -> str:
    packed = (line.partition(" ") for line in _read(f"{git}/packed-refs").splitlines())
    return _read(f"{git}/{name}") or next((commit for commit, _, packs in packed if packs == name), "")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib would be imported for it
            return file.read().strip()
    except OSError:
        return ""
