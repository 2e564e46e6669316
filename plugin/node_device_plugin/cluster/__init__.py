"""A Kubernetes API client, for the controller and for a node (as its kubelet). Standard library and PyYAML only.

kubernetes.core is no alternative: none of its modules patches a status subresource (kubernetes.core#1029), and it needs
a Python client that a controller with only ansible-core does not have. Ansible's side imports this package from the
collection's own path. The running plugin never calls the API.
"""
