"""Processes, files and words, handled so that nothing hangs, leaks or is lost."""
