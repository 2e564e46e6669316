"""The APIs of the kubelet, and the kubelet's knowledge of devices."""
