"""The kubelet's device plugin API, v1beta1: one socket for each resource."""
