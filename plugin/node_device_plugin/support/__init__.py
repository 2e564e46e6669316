"""General helpers that know nothing about devices."""
