"""Malformed input: what is made of real messages, what is promised for it, and both sides of a talk."""
