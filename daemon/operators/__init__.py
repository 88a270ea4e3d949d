"""Operators' commands, as the control socket answers them; `table` lists them all."""
