"""Where connections come in: a door makes links and says who is there; the loop that accepts stands once."""
