"""What keeps secrets and hidden text out of what is shown, logged or handed to a model."""
