"""Calls that are made only if the client's user agrees: who has agreed to what, and how a user is asked."""
