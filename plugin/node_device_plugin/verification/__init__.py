"""Verifies that a declaration took effect in the runtime, the kubelet and a container.

This file imports nothing, because Ansible's controller uses container_view and proof_record but has no grpc.
"""
