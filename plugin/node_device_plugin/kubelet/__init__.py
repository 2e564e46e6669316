"""The ways to the kubelet, and what it knows of devices."""
