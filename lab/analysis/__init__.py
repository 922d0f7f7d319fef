"""Statistics of runs: pure functions over numbers, no database and no page.

Whatever cannot be estimated is an `Unknown` with its reason, never a number that looks like one.
"""
