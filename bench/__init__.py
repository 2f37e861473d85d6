"""Benchmarks: each has `run(options) -> list[Row]`; `weft bench NAME` or `python -m bench.all` runs and records it."""
