"""Asks the person at the terminal what servers ask during a call."""
