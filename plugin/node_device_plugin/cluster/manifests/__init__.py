"""Renders the plugin as a DaemonSet: every object that a cluster needs, from the nodes' configurations.

Only ``files`` reads files. On the controller, Ansible imports the package from the collection's path. Therefore all
modules except ``files`` need only the standard library and Python 3.9. From the rest of the plugin, they import only
the declaration, host directories, socket paths and quantities.
"""

from .deployment import DEPLOYMENT, MANAGED_BY, Deployment, parse_deployment
from .nodes import (
    CommonGround,
    common_ground,
    configuration_text,
    for_pod,
    overlaps,
    read_configuration_text,
    sha256_of,
)
from .objects import (
    LABELS,
    NODE_LABEL,
    Manifest,
    config_map,
    daemon_set,
    monitors,
    namespace,
    node_label,
    render,
    require_room,
)
from .pod import CONTAINER, pods_overlap

__all__ = [
    "CONTAINER",
    "DEPLOYMENT",
    "LABELS",
    "MANAGED_BY",
    "NODE_LABEL",
    "CommonGround",
    "Deployment",
    "Manifest",
    "common_ground",
    "config_map",
    "configuration_text",
    "daemon_set",
    "for_pod",
    "monitors",
    "namespace",
    "node_label",
    "overlaps",
    "parse_deployment",
    "pods_overlap",
    "read_configuration_text",
    "render",
    "require_room",
    "sha256_of",
]
