"""Verifies that a declaration took effect: in the runtime, the kubelet and a container.

This file imports nothing, because Ansible on the controller uses container_view and proof_record and has no grpc.
"""
