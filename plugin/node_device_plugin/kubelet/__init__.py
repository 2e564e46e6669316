"""The kubelet's APIs, and the kubelet's records of devices."""
