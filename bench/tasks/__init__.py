"""What whole tasks cost a model's context on each surface: `python -m bench.tasks --help` says how."""
