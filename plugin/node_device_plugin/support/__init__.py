"""Parts that know nothing of devices."""
