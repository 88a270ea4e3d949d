"""Questions of servers during a call, asked in the terminal."""
