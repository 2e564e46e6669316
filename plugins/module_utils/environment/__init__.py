# SPDX-License-Identifier: Apache-2.0
"""The plugin's virtual environments on a node: creating them, and moving the running service between them.

- ``environments``: which environments exist, which is current, which to keep.
- ``build``: creates an environment from wheels.
- ``serving``: what the running plugin serves, according to the plugin and to the kubelet.
- ``unit``: the service that runs from an environment.
- ``change``: changes the version, and restores the old version if the new one does not become ready.

Runs on nodes: Python 3.9, standard library only.
"""
