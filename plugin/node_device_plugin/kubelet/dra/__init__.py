"""The kubelet's API for drivers of Dynamic Resource Allocation (DRA): one driver for all resources of a node."""
