"""The settings that the pods of all nodes share, computed from the nodes' configurations."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ...declaration import (
    Configuration,
    DeclarationError,
    Problem,
    configuration_file,
    parse_configuration,
    serialise,
)
from ...declaration.fields import parse_http_address
from ...declaration.injection_rules import open_probes
from ...declaration.model import DraDriver
from ...declaration.named_directories import DEV
from ...devices.host_directories import directories, outermost

_COMMENT = "Rendered from the declaration: what is changed here by hand is overwritten."
#: The pod's directory with the configurations of all nodes, each in a file with the node's name.
CONFIGURATIONS = "/etc/node-device-plugin"
#: The file for every node without a file of its own. No node can have this name.
DEFAULT = "_default"
# A mount on one of these directories of the image would hide the plugin itself.
_OF_THE_IMAGE = frozenset({"bin", "lib", "lib64", "proc", "sbin", "usr"})
#: Settings that determine a pod's mounts, and so must be identical on all nodes of one DaemonSet.
_SHARED = ("kubelet_device_plugin_dir", "kubelet_root_dir", "dynamic_cdi_dir", "cdi_spec_dirs", "registration")


class CommonGround(NamedTuple):
    """What all pods share.

    settings: a node's configuration, whose settings in _SHARED apply to all nodes. port: the HTTP port.
    device_directories: host directories that may contain devices. drivers: the names of the DRA drivers that the pods
    serve. serves_device_plugins: whether any pod serves a device plugin.
    """

    settings: Configuration
    port: int
    device_directories: tuple[str, ...]
    drivers: tuple[str, ...]
    serves_device_plugins: bool


def for_pod(configuration: Configuration) -> Configuration:
    """A node's configuration for its pod: the HTTP address keeps the port and loses the host.

    Of the DRA driver, only the name stays: a pod learns its node from the kubelet, and has a service account.
    """
    address, dra = configuration.http_address, DraDriver(configuration.dra.name)
    return configuration._replace(http_address=":%d" % parse_http_address(address)[1] if address else "", dra=dra)


def configuration_text(configuration: Configuration) -> str:
    """The text of a node's file for its pod."""
    return configuration_file.text(serialise.configuration_to_data(for_pod(configuration)), _COMMENT)


def sha256_of(text: str) -> str:
    """The hash of a configuration file, as the running plugin computes it."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def read_configuration_text(text: str) -> Configuration:
    """Read a node's configuration from the text of ``configuration_text``. Raises DeclarationError."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    try:
        data = json.loads("\n".join(lines))
    except ValueError as error:
        raise DeclarationError([Problem("configuration", f"is not valid JSON: {error}")]) from error
    return parse_configuration(data)


def common_ground(configurations: Mapping[str, Configuration]) -> CommonGround:
    """The settings that all pods share.

    configurations: by node. Raises DeclarationError if a pod cannot do what the declaration requires, or if nodes
    differ in a setting that all pods of a DaemonSet must share.
    """
    problems: list[Problem] = []
    nodes = sorted(configurations)
    if not nodes:
        raise DeclarationError([Problem("nodes", "is empty: a DaemonSet needs the configuration of at least one node")])
    for node in nodes:
        problems.extend(_pod_problems(node, configurations[node]))
    first = configurations[nodes[0]]
    for node in nodes[1:]:
        for key in _SHARED:
            one, other = getattr(first, key), getattr(configurations[node], key)
            if one != other:
                problems.append(
                    Problem(
                        f"{node}: {key}",
                        f"is {_shown(other)}, but on {nodes[0]} {_shown(one)}: all nodes of a DaemonSet must have the "
                        "same value, so give nodes that differ another DaemonSet (name)",
                    )
                )
    ports = {node: for_pod(configurations[node]).http_address for node in nodes}
    for node in nodes[1:]:
        if ports[node] != ports[nodes[0]] and ports[node] and ports[nodes[0]]:
            problems.append(Problem(f"{node}: http_address", f"must have the same port as on {nodes[0]}"))
    if problems:
        raise DeclarationError(problems)
    return CommonGround(
        settings=first,
        port=parse_http_address(ports[nodes[0]])[1],
        device_directories=outermost(
            path for node in nodes for resource in configurations[node].resources for path in directories(resource)
        ),
        drivers=tuple(sorted({each.dra.name for each in configurations.values() if each.uses_dra})),
        serves_device_plugins=any(each.uses_device_plugin for each in configurations.values()),
    )


def overlaps(kubelets: Iterable[str]) -> bool:
    """Whether every kubelet accepts two sockets of one resource at the same time (releases from 1.37 on do).

    kubelets: their versions, as in node objects (v1.37.2, v1.37.0+k3s1, v1.37.1-gke.100).
    """
    found = [re.match(r"v(\d+)\.(\d+)\.\d+(?!-(?:alpha|beta|rc)\.)", version) for version in kubelets]
    return bool(found) and all(each is not None and (int(each[1]), int(each[2])) >= (1, 37) for each in found)


def _pod_problems(node: str, configuration: Configuration) -> Iterator[Problem]:
    if not configuration.http_address:
        yield Problem(f"{node}: http_address", "is empty, but a rollout reads the pods' metrics there: set an address")
    for key in ("cdi_spec_dirs", "dynamic_cdi_dir"):
        value = getattr(configuration, key)
        for directory in (value,) if isinstance(value, str) else value:
            if _holds_configurations(directory):
                message = f"{directory} is the directory of a pod's configuration: choose another directory"
                yield Problem(f"{node}: {key}", message)
    yield from open_probes(configuration.resources, f"{node}: resources")
    for position, resource in enumerate(configuration.resources):
        for directory in sorted(set(directories(resource))):
            if directory != DEV and (
                directory.count("/") == 1
                or directory.split("/")[1] in _OF_THE_IMAGE
                or _holds_configurations(directory)
            ):
                yield Problem(
                    "%s: resources[%d] (%s)" % (node, position, resource.name),
                    f"has devices in {directory}, which the image hides from the pod: move the devices",
                )


def _holds_configurations(directory: str) -> bool:
    return (directory + "/").startswith(CONFIGURATIONS + "/")


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
