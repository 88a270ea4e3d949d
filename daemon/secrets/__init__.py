"""Secrets that are kept elsewhere: commands that print them, and keyrings."""
