"""A sentence per server and tool, from a model: what is asked, what of the answer is taken, who gives it."""
