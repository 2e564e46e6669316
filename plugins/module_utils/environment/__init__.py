# SPDX-License-Identifier: Apache-2.0
"""Creates the plugin's virtual environments on a node, and moves the running service between them.

- ``environments`` finds the existing and the current environment, and removes surplus environments.
- ``build`` creates an environment from wheels.
- ``serving`` reads which resources and devices the running plugin serves.
- ``change`` changes the version, and restores the old version if the new version does not become ready. It restarts and
  queries the service that runs from an environment.
"""
