"""Measuring what connects GPUs and nodes, and judging it: schedules, evidence, verdicts. Pure functions, no torch."""
