"""What exists and how it is: frozen snapshots, folded from facts. No I/O, no clock, no event loop."""
