"""How a verdict is told to people."""
