# SPDX-License-Identifier: Apache-2.0
"""Manages the plugin's DaemonSet by the Kubernetes API client in the package ``cluster``."""
