"""What the clients of this machine have, and how mcpd is put into their files and taken out again."""
