"""One GPU machine: what it measures and what it runs."""
