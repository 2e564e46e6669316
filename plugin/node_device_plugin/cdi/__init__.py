"""Writes, reads and checks CDI specs as the runtimes do."""
