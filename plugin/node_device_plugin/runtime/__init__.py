"""Talks to the container runtime by its CRI socket."""
