"""What clients ask for."""
