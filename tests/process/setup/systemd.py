"""A `systemctl` that answers as scripted, for tests that must not touch a real one."""

from pathlib import Path

RUNS = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "MainPID": "4711"}
STOPPED = {**RUNS, "ActiveState": "inactive", "MainPID": "0"}


class FakeSystemd:
    """Says the same of each unit of the user's, and knows none of the system's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "told"
        self.environ = {
            "PATH": f"{folder}:/usr/bin:/bin",
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "r"),
        }

    def says(self, unit: dict[str, str], refusal: str = "") -> None:
        """Script it: what each unit is, and with which words everything else is refused."""
        shown = "\\n".join(f"{key}={value}" for key, value in unit.items())
        else_ = f"echo '{refusal}' >&2; exit 1" if refusal else "exit 0"
        units = self.folder / ".local" / "share" / "systemd" / "user"
        units.mkdir(parents=True, exist_ok=True)
        (units / "mcpd.socket").touch()
        program = self.folder / "systemctl"
        program.write_text(
            "#!/bin/sh\n"
            f'echo "$*" >> {self.log}\n'
            'case "$*" in\n'
            f"'--user show '*) printf '{shown}\\n' ;;\n"
            "'show '*) echo LoadState=not-found ;;\n"
            f"*) {else_} ;;\n"
            "esac\n"
        )
        program.chmod(0o755)

    def told(self) -> list[str]:
        """What it was told to do."""
        return [line for line in self.log.read_text().splitlines() if "show" not in line]
