"""Questions of servers, asked in a terminal."""
