"""Two branches that each change `mcpd.lock`, merged by git itself."""

import subprocess
from pathlib import Path

from daemon.config.lock_file import LOCK, lock_in
from daemon.setup.locking import approve, empty, written
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool


def text_of(*tools: str) -> str:
    content = empty()
    approve(content, [tool("git", name) for name in tools], {"git": "identity"})
    return written(content)


class Repository:
    """A repository with one lock."""

    def __init__(self, directory: Path, *tools: str) -> None:
        self.directory = directory
        self.tools = tools
        self.git("init", "-q", "-b", "main")
        self.write(*tools)
        self.commit()

    def git(self, *words: str) -> int:
        settings = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *settings, *words], cwd=self.directory, check=False, capture_output=True, timeout=60
        ).returncode

    def write(self, *names: str) -> None:
        (self.directory / LOCK).write_text(text_of(*names))

    def commit(self) -> None:
        assert self.git("add", "-A") == 0
        assert self.git("commit", "-qm", "x") == 0

    def merged(self, *branches: tuple[str, ...]) -> bool:
        """Whether branches with these tools merge without a conflict."""
        for number, names in enumerate(branches):
            assert self.git("checkout", "-qb", f"b{number}", "main") == 0
            self.write(*names)
            self.commit()
        assert self.git("checkout", "-q", "b0") == 0
        return self.git("merge", "-q", "--no-edit", *(f"b{number}" for number in range(1, len(branches)))) == 0


MIDDLE = tuple("dehkn")


@cases("one", "other", "merges")
def test_git_merges_tools_that_were_added_in_different_places(
    one: str, other: str, merges: bool, tmp_path: Path
) -> None:
    repository = Repository(tmp_path, *MIDDLE)
    assert repository.merged((*MIDDLE, one), (*MIDDLE, other)) is merges
    if merges:
        content = (tmp_path / LOCK).read_bytes()
        assert not lock_in(content).problem
        assert set(lock_in(content).servers["git"].tools) == {*MIDDLE, one, other}
        assert content.decode() == text_of(*MIDDLE, one, other)


def test_a_tool_that_goes_merges_with_one_that_comes_elsewhere(tmp_path: Path) -> None:
    repository = Repository(tmp_path, *MIDDLE)
    assert repository.merged(MIDDLE[:-1], ("a", *MIDDLE))
    assert set(lock_in((tmp_path / LOCK).read_bytes()).servers["git"].tools) == {"a", *MIDDLE[:-1]}
