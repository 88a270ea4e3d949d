"""Events of servers, sessions and the daemon, in order and bounded in number."""
