"""What can be said of a node without root and without a run: one file for each family of checks."""
