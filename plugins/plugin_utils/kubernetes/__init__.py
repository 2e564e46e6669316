# SPDX-License-Identifier: Apache-2.0
"""The plugin's DaemonSet through the Kubernetes API; the client itself is the plugin's package ``kubernetes``."""
