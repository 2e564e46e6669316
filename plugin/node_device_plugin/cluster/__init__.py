"""The Kubernetes API, with the standard library and PyYAML: from the controller, and from a node as its kubelet.

Not kubernetes.core: none of its modules patches a status subresource (kubernetes.core#1029), and it needs a Python
client that a controller with ansible-core alone has not got. Ansible's side imports this from the collection's own
path; the plugin itself never speaks to the API.
"""
