"""The newest version of a package, as the clients tell that are there."""

import sys
from pathlib import Path

import pytest

from daemon.config.command_lines import Unpinned
from daemon.setup.adding import newest

NPM = Unpinned("@s/p", "@s/p", "@s/p@", is_npm=True)
PYPI = Unpinned("s_p", "s_p", "s_p==", is_npm=False)


def client(directory: Path, name: str, body: str) -> None:
    program = directory / name
    program.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("package", "name", "body", "version"),
    [
        (
            NPM,
            "npm",
            "assert sys.argv[1:] == ['view', '@s/p', 'version']; print('warning\\n1.2.3-rc.1')",
            "1.2.3-rc.1",
        ),
        (NPM, "npm", "sys.exit('E404')", None),
        (PYPI, "uv", "assert sys.stdin.read() == 's_p'; print('s-p==2026.1')", "2026.1"),
        (
            PYPI,
            "python3",
            "print('s-p (1.2.3)') if sys.argv[3:5] == ['index', 'versions'] else sys.exit(1)",
            "1.2.3",
        ),
    ],
)
def test_the_users_own_client_is_asked(
    package: Unpinned, name: str, body: str, version: str | None, tmp_path: Path
) -> None:
    client(tmp_path, name, body)
    # Without an index, this interpreter's pip finds nothing.
    environ = {"PATH": str(tmp_path), "PIP_NO_INDEX": "1", "HOME": str(tmp_path)}
    assert newest(package, environ, tmp_path) == version


def test_without_a_client_there_is_no_version(tmp_path: Path) -> None:
    assert newest(NPM, {"PATH": str(tmp_path)}, tmp_path) is None
