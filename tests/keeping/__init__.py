"""What the recorder is made of."""
