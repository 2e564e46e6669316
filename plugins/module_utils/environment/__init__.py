# SPDX-License-Identifier: Apache-2.0
"""The plugin's virtual environments on a node: how one is made, and how the running service goes from one to another.

- ``environments``: which are there, which is current, which stay.
- ``build``: lay the wheels out.
- ``serving``: what the running plugin serves, by its own words and by the kubelet's.
- ``unit``: the service that runs from an environment.
- ``change``: from one version to another, and back where the other one does not become ready.

Runs on nodes: Python 3.9, standard library only.
"""
