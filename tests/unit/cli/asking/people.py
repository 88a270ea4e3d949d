"""People at a terminal, as scripted: each line is typed when something is asked."""

from collections.abc import Iterable

from daemon.cli.asking.elicitation import Interrupted, Terminal


class Scripted(Terminal):
    """Types its lines one after another, then Ctrl-C; keeps what it was shown."""

    def __init__(self, *lines: str) -> None:
        self.left = list(lines)
        self.shown: list[str] = []

    def say(self, text: str) -> None:
        """Keep it."""
        self.shown.append(text)

    def loud(self, text: str) -> str:
        """Between stars."""
        return f"*{text}*"

    def line(self, prompt: str) -> str:
        """The next line."""
        self.shown.append(prompt)
        if not self.left:
            raise Interrupted
        return self.left.pop(0)

    @property
    def all(self) -> str:
        """All that was shown."""
        return "\n".join(self.shown)


class Helpful(Scripted):
    """Types the value that a test has for each question, in their order, after something that may not fit."""

    def __init__(self, lines: Iterable[str], *, noise: Iterable[str] = ()) -> None:
        super().__init__(*lines)
        self._noise = list(noise)

    def line(self, prompt: str) -> str:
        """Noise first, as long as there is any."""
        return self._noise.pop(0) if self._noise else super().line(prompt)
