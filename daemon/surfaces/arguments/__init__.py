"""What models send as a tool's arguments in a wrapper call, and what they meant."""
