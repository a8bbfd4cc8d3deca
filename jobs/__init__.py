"""One run: what trains, and everything that can be said about it without a machine."""

VERSION = "0.1.0"
"""Of the whole distribution: every floor may look here, and every run's own copy says by what it was trained."""
