"""General helpers without knowledge of devices."""
