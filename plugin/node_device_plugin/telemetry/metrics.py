"""The plugin's metrics. daemon.state has the numbers of the gauges."""

from __future__ import annotations

from .exposition import Counter, Gauge, Histogram

PREFIX = "node_device_plugin_"

REGISTRATIONS = Counter(
    PREFIX + "registrations_total",
    "Attempts to register a resource with the kubelet, by result: registered, no_kubelet, refused, or no_stream "
    "(the kubelet accepted the registration but opened no ListAndWatch stream).",
    ("resource", "result"),
)
ALLOCATIONS = Counter(
    PREFIX + "allocations_total",
    "Allocate calls of the kubelet, by result: ok, or gRPC's status code in lower case.",
    ("resource", "result"),
)
ALLOCATION_SECONDS = Histogram(
    PREFIX + "allocation_duration_seconds",
    "How long an Allocate call took inside the plugin; pod admission of the whole node waits for it.",
    ("resource",),
    (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 10.0),
)
CDI_WRITES = Counter(
    PREFIX + "cdi_writes_total",
    "CDI specs written or removed by the running plugin, by result: written, removed or failed.",
    ("result",),
)
RELOADS = Counter(
    PREFIX + "configuration_reloads_total",
    "Readings of the configuration file while running, by result: applied, unchanged or refused.",
    ("result",),
)
CLAIM_PREPARATIONS = Counter(
    PREFIX + "claim_preparations_total",
    "ResourceClaims that the kubelet let the plugin prepare (DRA), by result: prepared or failed.",
    ("result",),
)
SLICE_WRITES = Counter(
    PREFIX + "slice_writes_total",
    "ResourceSlices that the plugin created, replaced or deleted (DRA), by result: written, deleted or failed.",
    ("result",),
)
COUNTED = (
    REGISTRATIONS,
    ALLOCATIONS,
    ALLOCATION_SECONDS,
    CDI_WRITES,
    RELOADS,
    CLAIM_PREPARATIONS,
    SLICE_WRITES,
)

BUILD = Gauge(PREFIX + "build_info", "Version of the plugin and its Python.", ("version", "python"))
CONFIGURATION = Gauge(PREFIX + "configuration_info", "SHA-256 of the configuration in use.", ("sha256",))
REFUSED = Gauge(
    PREFIX + "configuration_refused",
    "1 while the plugin refuses the configuration file and uses an older configuration.",
)
STARTED = Gauge(PREFIX + "start_time_seconds", "When the plugin started, since the epoch.")
DISCOVERY_AGE = Gauge(PREFIX + "discovery_age_seconds", "Seconds since the last full scan of the devices.")
REGISTERED = Gauge(
    PREFIX + "registered",
    "1 while the resource is registered: the kubelet can allocate its devices.",
    ("resource",),
)
REGISTERED_SECONDS = Gauge(
    PREFIX + "registered_seconds",
    "Seconds since the resource was registered; missing while it is not.",
    ("resource",),
)
DEVICES = Gauge(
    PREFIX + "devices",
    "Devices by state (healthy, unhealthy, absent) and reason.",
    ("resource", "state", "reason"),
)
PREPARED_CLAIMS = Gauge(
    PREFIX + "prepared_claims",
    "Prepared ResourceClaims with a device of the resource; missing for a resource of a device plugin.",
    ("resource",),
)
