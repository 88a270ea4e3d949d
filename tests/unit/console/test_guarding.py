"""Which cookie counts."""

from __future__ import annotations

import pytest

from daemon.console.access import cookie_in, cookie_name


@pytest.mark.parametrize(
    ("cookie", "plain", "under_tls"),
    [
        ("mcpd_console_7337=a", "a", ""),
        ("__Host-mcpd_console_7337=b", "", "b"),
        ("other=x; mcpd_console_7337=a;__Host-mcpd_console_7337=b", "a", "b"),
        ("mcpd_console_73372=a; xmcpd_console_7337=b; mcpd_console_7337; mcpd_console=c", "", ""),
        ("mcpd_console_7338=a; __Host-mcpd_console_7338=b", "", ""),
        ("", "", ""),
    ],
)
def test_a_cookie_that_any_page_of_the_host_can_set_is_none_under_tls(
    cookie: str, plain: str, under_tls: str
) -> None:
    headers = {"host": "127.0.0.1:7337", **({"cookie": cookie} if cookie else {})}
    assert cookie_in(headers, tls=False) == plain
    assert cookie_in(headers, tls=True) == under_tls


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("[::1]:7337", "mcpd_console_7337"),
        ("mcpd.example", "mcpd_console"),
        ("", "mcpd_console"),
        ("x:1; a=b", "mcpd_console"),
    ],
)
def test_a_cookie_is_named_by_the_port_and_by_nothing_else_of_the_host(host: str, name: str) -> None:
    assert cookie_name(host, tls=False) == name
    assert cookie_name(host, tls=True) == f"__Host-{name}"
