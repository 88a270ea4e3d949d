"""The workspace of one client: the directory that it works in, as it says so or as it can be told."""

from __future__ import annotations


class OwnWorkspace:
    """The directory that one client works in, once that is known."""

    def __init__(self) -> None:
        """Begin with a client that has named none."""
        self.is_known = True
        """Whether it was looked for; what it is may be that there is none."""
        self.directory: str | None = None
        """The directory, absolute and normalised; None if there is none."""
        self.fault = ""
        """Why what the client has named cannot be used, and what to do; empty if nothing is wrong."""

    async def find(self) -> None:
        """Return once it is known."""
        self.is_known = True
