"""Events of servers, sessions and the daemon itself, kept in order and bounded."""
