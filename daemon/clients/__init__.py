"""What is known of one client: what it was given of its list of tools, and how it takes what it is told."""
