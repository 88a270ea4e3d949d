"""Puts servers' questions during a call to the person at the terminal."""
