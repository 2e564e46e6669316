"""Nodes as action node_status reads them: one that is well, and a fleet in which everything that happens is somewhere.

What its commands answer has the shape of `node-device-plugin status -o json` and `runtime -o json`.
"""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import node

CONFIGURATION = "/etc/node-device-plugin/config.yaml"
FACTS = {
    "python": {"version": [3, 11, 2], "executable": "/usr/bin/python3"},
    "uid": 0,
    "init": "systemd",
    "runtime": {
        "name": "containerd",
        "version": "1.7.24",
        "socket": "/run/containerd/containerd.sock",
        "obstacles": [],
    },
    "kubelet": {"pid": 7, "version": "1.36.2"},
    "device_plugins": {"instance": None, "registered": [], "others": [], "drivers": []},
    "commands": ["/usr/local/bin/node-device-plugin"],
    "missing_devices": [],
    "missing_host_paths": [],
    "other_than_devices": {},
    "device_links": {},
    "transaction_left": False,
    "cdi_files": [],
    "claims_prepared": [],
    "spec_devices": [],
    "ledger": [CONFIGURATION],
    "converged": {},
}
CDI_ON = {"cdi": {"enabled": True, "spec_dirs": ["/etc/cdi", "/var/run/cdi"]}}
CDI_OFF = {"cdi": {"enabled": False, "spec_dirs": ["/etc/cdi", "/var/run/cdi"]}}
NAMES = ["devices.example.com/camera", "devices.example.com/serial", "github.com.ihcsim/crand", "github.com.ihcsim/kvm"]


def declared(*names, injection="cdi", **capacities):
    """A declaration of resources, and of fixed capacities of the domain example.com."""
    return {
        "resources": [{"name": name, "injection": injection} for name in names],
        "capacities": {f"example.com/{name}": value for name, value in capacities.items()},
        "needs_cdi": injection == "cdi",
    }


def device(identity, state="healthy", reason=None, shares=1):
    ids = [identity] if shares == 1 else [f"{identity}::{share}" for share in range(shares)]
    return {"id": identity, "state": state, "reason": reason, "kubelet_ids": ids, "host_paths": []}


def serving(name, *devices, registered=True, refused=None):
    return {"name": name, "registered": registered, "devices": list(devices), "refused": refused or {}}


def held(name, share, pod, namespace="default"):
    found = {"resource": name, "device": share, "namespace": namespace, "pod": pod, "container": "main"}
    return {**found, "host_paths": [], "by_our_cdi": False}


def status(*resources, holds=(), source="kubelet", **plugin):
    """What the command status answers; the kubelet lists what the plugin calls healthy."""
    allocatable = {
        each["name"]: [share for d in each["devices"] if d["state"] == "healthy" for share in d["kubelet_ids"]]
        for each in resources
        if each["registered"]
    }
    return {
        "plugin": {
            "version": "0.1.0",
            "started": 1795242772.5,
            "ready": True,
            "not_ready": [],
            "configuration": {
                "path": "/etc/node-device-plugin/config.yaml",
                "sha256": "5a55b299645f",
                "problems": [],
            },
            "resources": list(resources),
            **plugin,
        },
        "problem": "",
        "source": source,
        "held": list(holds),
        "allocatable": allocatable if source == "kubelet" else {},
    }


def silent(problem="no plugin answers at /var/lib/kubelet/device-plugins/x: no such file or directory", **lists):
    """The same without a plugin."""
    return {"plugin": None, "problem": problem, "source": "kubelet", "held": [], "allocatable": {}, **lists}


def well(*resources, **changes):
    """What is read of a node on which nothing is wrong."""
    names = [each["name"] for each in resources]
    read = node.Read(facts=FACTS, status=status(*resources), runtime=CDI_ON, declaration=declared(*names))
    return read._replace(**changes)


def fleet(count, resource_count):
    """Entries of ``count`` nodes: every fourth has one of all the things that can be wrong, in turn."""
    more = [f"vendor-{number}.example.org/accelerator" for number in range(1, resource_count - len(NAMES) + 1)]
    names = [*NAMES, *more][:resource_count]
    entries = []
    for number in range(1, count + 1):
        name = f"worker-{number:03}"
        cases = _cases(name, names)
        entries.append(node.entry(name, cases[number // 4 % len(cases)] if number % 4 == 0 else _well(number, names)))
    return entries


def _usual(names):
    usual = [serving(name, *(device(f"{name[-3:]}{i}", shares=2) for i in range(3))) for name in names]
    usual[1] = serving(names[1])
    return usual


def _well(number, names):
    usual = _usual(names)
    facts = {**FACTS, "runtime": {**FACTS["runtime"], "version": "2.1.4"}} if number % 3 == 0 else FACTS
    holds = [held(names[0], f"{names[0][-3:]}0::0", f"vision-{number % 7}"), held(names[2], "and1::1", f"job-{number}")]
    return well(*usual, facts=facts, status=status(*usual, holds=holds))


def _cases(name, names):
    usual = _usual(names)
    first, *rest = usual
    one_lacks = serving(
        names[0],
        *first["devices"][:2],
        device("cam2", "unhealthy", "/dev/video2: No such file or directory", 2),
        refused={"cam3": "two devices have the id cam3: /dev/video3 and /dev/video13"},
    )
    all_lack = [
        {**each, "state": "unhealthy", "reason": f"/dev/video{at}: Input/output error"}
        for at, each in enumerate(first["devices"])
    ]
    unregistered = [{**each, "registered": False} for each in usual]
    refused = {
        "path": "/etc/node-device-plugin/config.yaml",
        "sha256": "0a1b2c",
        "problems": ["resources[0].name: must be a domain and a name"],
    }
    return [
        well(*usual, runtime=CDI_OFF),
        well(one_lacks, *rest),
        node.Read(
            unreachable=f"Failed to connect to the host via ssh: ssh: connect to host {name} port 22: No route to host",
            declaration=declared(*names),
        ),
        well(serving(names[0], *all_lack), *rest),
        well(*usual, facts={**FACTS, "commands": []}, status=None, runtime=None),
        well(*unregistered, facts={**FACTS, "kubelet": None}, status=status(*unregistered, source="none")),
        well(*usual, status=silent()),
        well(first, *unregistered[1:], status=status(first, *unregistered[1:], ready=False)),
        well(
            *usual,
            status=status(*usual, configuration=refused, ready=False, not_ready=["the devices were never scanned"]),
        ),
        well(*usual, declaration=declared(*names, "example.com/new-one")),
    ]
