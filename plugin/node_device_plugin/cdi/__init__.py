"""CDI specs: written, read, and checked by the rules of the runtimes."""
