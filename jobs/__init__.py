"""One run: what trains, and everything that can be said about it without a machine."""
