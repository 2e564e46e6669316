"""Objects for the Prometheus operator (monitoring.coreos.com/v1). docs/observability.md has the same alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_GROUP = "monitoring.coreos.com/v1"

#: Maps each alert's name to the other keys of its Prometheus rule.
ALERTS: dict[str, dict[str, str]] = {
    "NodeDevicesNotRegistered": {"expr": "node_device_plugin_registered == 0", "for": "1m"},
    "NodeDeviceUnhealthy": {
        "expr": 'sum by (instance, resource, reason) (node_device_plugin_devices{state="unhealthy"}) > 0',
        "for": "2m",
    },
    "NodeDevicesConfigurationRefused": {"expr": "node_device_plugin_configuration_refused == 1"},
    "NodeDevicesSlowAllocation": {
        "expr": "histogram_quantile(0.99, sum by (le, instance) "
        "(rate(node_device_plugin_allocation_duration_seconds_bucket[10m]))) > 0.05"
    },
}


def pod_monitor(metadata: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """A PodMonitor. labels: those of the pods."""
    return {
        "apiVersion": _GROUP,
        "kind": "PodMonitor",
        "metadata": dict(metadata),
        "spec": {
            "selector": {"matchLabels": dict(labels)},
            "podMetricsEndpoints": [
                {
                    "port": "http",
                    # Alerts name the node instead of the pod, because pods come and go.
                    "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}],
                }
            ],
        },
    }


def alert_rules() -> dict[str, Any]:
    """Our alerts as the content of a Prometheus rule file."""
    rules = [{"alert": name, **rule} for name, rule in ALERTS.items()]
    return {"groups": [{"name": "node-device-plugin", "rules": rules}]}


def prometheus_rule(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A PrometheusRule with our alerts."""
    return {"apiVersion": _GROUP, "kind": "PrometheusRule", "metadata": dict(metadata), "spec": alert_rules()}
