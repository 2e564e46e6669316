"""Writes, reads and checks CDI specs by the rules of the runtimes."""
