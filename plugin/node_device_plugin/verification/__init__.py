"""Reads back that a declaration took effect: from the runtime, the kubelet and a container.

It imports nothing: Ansible on the controller uses container_view and proof_record, and has no grpc.
"""
