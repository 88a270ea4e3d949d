"""What a server asks while a call runs: questions in a terminal, and their answers."""
