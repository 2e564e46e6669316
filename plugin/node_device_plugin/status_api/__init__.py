"""The pages of the running plugin, over HTTP: metrics, health, readiness, its state and the reload."""
