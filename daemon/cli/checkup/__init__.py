"""What `mcpd doctor` looks at, a module for each matter, and what helps a server that does not run."""
