"""Time a candidate against the baseline: workers, sides, timers, checks."""
