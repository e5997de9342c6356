"""The tasks beside what others use: `bench.py` runs all, each peer in an environment of its own."""
