"""What is known of one client."""
