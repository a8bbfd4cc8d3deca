"""How a plan is told: in words, as a record, in conversation."""
