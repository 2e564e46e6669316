"""A client for the Kubernetes API, with the standard library and PyYAML: for the controller, and a node's kubelet user.

Not kubernetes.core: none of its modules patches a status subresource (kubernetes.core#1029), and it needs a Python
client that a controller with only ansible-core does not have. Ansible's side imports this package from the collection's
own path. The running plugin never calls the API.
"""
