"""Sets mcpd up: adds servers, changes the configuration, and installs mcpd into clients."""
