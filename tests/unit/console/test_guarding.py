"""Which cookie counts."""

from __future__ import annotations

import pytest

from daemon.console.guarding import cookie_in


@pytest.mark.parametrize(
    ("cookie", "plain", "under_tls"),
    [
        ("mcpd_console=a", "a", ""),
        ("__Host-mcpd_console=b", "", "b"),
        ("other=x; mcpd_console=a;__Host-mcpd_console=b", "a", "b"),
        ("mcpd_console2=a; xmcpd_console=b; mcpd_console", "", ""),
        ("", "", ""),
    ],
)
def test_a_cookie_that_any_page_of_the_host_can_set_is_none_under_tls(
    cookie: str, plain: str, under_tls: str
) -> None:
    headers = {"cookie": cookie} if cookie else {}
    assert cookie_in(headers, tls=False) == plain
    assert cookie_in(headers, tls=True) == under_tls
