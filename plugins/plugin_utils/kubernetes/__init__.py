# SPDX-License-Identifier: Apache-2.0
"""Manages the plugin's DaemonSet with the Kubernetes API client in the package ``cluster``."""
