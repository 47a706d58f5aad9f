"""Programs that are run for their output: command lines filled in, scores and outputs read."""
