"""The operator's machine: what is shown, asked and carried."""
