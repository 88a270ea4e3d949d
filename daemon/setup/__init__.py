"""Setting mcpd up: what the clients of this machine have, and how mcpd is put into them."""
