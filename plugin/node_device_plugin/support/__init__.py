"""General helpers that do not know devices."""
