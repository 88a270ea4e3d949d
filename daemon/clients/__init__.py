"""What is known of one client: what it was given, how it takes what it is told, and what it was spared."""
