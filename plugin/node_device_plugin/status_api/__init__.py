"""The HTTP pages of the running plugin: metrics, health, readiness, status and reload."""
