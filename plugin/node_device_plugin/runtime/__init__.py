"""Talks to the container runtime over its CRI socket."""
