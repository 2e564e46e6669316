# SPDX-License-Identifier: Apache-2.0
"""The plugin's DaemonSet through the Kubernetes API, whose client is the plugin's package ``cluster``."""
