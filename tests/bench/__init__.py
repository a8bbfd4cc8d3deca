"""Measurements. `python -m tests.bench.NAME` prints a table with the peer measured in the same run: medians and ratios.

`--bar` takes at most five minutes, prints figures beside targets last and exits 1 when one falls short; `--full` may
take longer.
"""
