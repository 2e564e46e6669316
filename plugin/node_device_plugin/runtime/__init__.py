"""The container runtime, by its CRI socket."""
