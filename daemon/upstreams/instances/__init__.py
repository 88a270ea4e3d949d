"""Instances of a server whose clients do not share one: who gets which, what it is told, how long it lasts."""
