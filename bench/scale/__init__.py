"""A model of one daemon's capacity, and of the need for a second one, based on the results of `bench.calls`."""
