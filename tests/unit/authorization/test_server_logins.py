"""What servers have asked for since they were logged in to."""

from pathlib import Path

from daemon.authorization.logins import FileLogins, ServerLogins, login_url
from daemon.config.config_model import Server, TransportType
from tests.unit.cases import cases


def test_the_next_login_asks_for_what_is_granted_and_for_everything_wanted_since() -> None:
    logins = ServerLogins(FileLogins(Path("/nowhere")))
    assert logins.wanted("one", "read") is None
    logins.want("one", "write")
    logins.want("one", "admin write")
    assert logins.wanted("one", "read") == "read write admin"
    assert logins.wanted("two") is None
    logins.satisfied("one")
    assert logins.wanted("one", "read") is None


@cases("url", "counts_for")
def test_a_login_is_made_over_http_whatever_the_server_speaks(url: str, counts_for: str) -> None:
    assert login_url(Server(name="s", type=TransportType.HTTP, url=url)) == counts_for
