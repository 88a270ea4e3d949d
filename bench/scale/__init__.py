"""What one daemon carries, and what a second one would need: a model, fed by what `bench.calls` measured."""
