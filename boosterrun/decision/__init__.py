"""From pairs to a verdict, pure: no clock, no files, no processes."""
