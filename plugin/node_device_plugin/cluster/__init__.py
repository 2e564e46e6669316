"""A Kubernetes API client for the Ansible controller, for a node with its kubelet's credentials, and for a pod.

The package needs only the standard library and PyYAML. kubernetes.core is no alternative: none of its modules patches
a status subresource (kubernetes.core#1029). kubernetes.core also needs a Python client, which a controller with only
ansible-core does not have. Ansible imports this package from the collection's path. The running plugin calls the API
only for a startup taint or a node condition (daemon.node_report).
"""
