# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API from the controller, with the standard library and what ansible-core needs itself.

Not kubernetes.core: none of its modules patches a status subresource (kubernetes.core#1029), and it needs a Python
client that a controller with ansible-core alone has not got.
"""
