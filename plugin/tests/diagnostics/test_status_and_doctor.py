"""status and doctor: on a node where all is well, and with each link of the chain broken."""

import asyncio
import contextlib
import copy
import json
import os
import pathlib
import threading
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from kubelet_stand_in import StandInKubelet, checkpoint
from node_device_plugin.cdi.directories import check_directories
from node_device_plugin.cli.main import main
from node_device_plugin.cluster.api import LacksRights, NotFound
from node_device_plugin.daemon.reload import Reloader
from node_device_plugin.daemon.state import State
from node_device_plugin.declaration import cdi, parse_configuration
from node_device_plugin.declaration.configuration_file import (
    KubeletPlaces,
    LoadedConfiguration,
    Source,
    kubelet_places,
    load,
)
from node_device_plugin.devices import health
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.devices.given import HELD_BY_ANOTHER_NAME, IN_DOUBT, MET, MOVED_AWAY
from node_device_plugin.devices.reason import Reason
from node_device_plugin.diagnostics import cdi_specs, doctor, instances
from node_device_plugin.diagnostics.doctor import Doctor
from node_device_plugin.diagnostics.findings import Finding, Findings
from node_device_plugin.diagnostics.instances import POD, pods_configuration, running_instances
from node_device_plugin.diagnostics.status import Status, status
from node_device_plugin.kubelet import pod_resources
from node_device_plugin.kubelet.checkpoint import FILE_NAME, CheckpointError, read_checkpoint
from node_device_plugin.kubelet.frontend import Held, ResourceStatus
from node_device_plugin.kubelet.losses import Loss
from node_device_plugin.kubelet.queries import POD_RESOURCES_SOCKET, HeldDevice, Holders
from node_device_plugin.runtime.errors import CriError
from node_device_plugin.status_api import client
from node_device_plugin.status_api.pages import Outcome, private_pages
from node_device_plugin.status_api.server import Endpoint
from node_device_plugin.support import kubelet_process
from node_device_plugin.support.bounded_calls import BoundedCalls
from node_device_plugin.support.kubelet_process import KubeletProcess, running_kubelet
from node_device_plugin.support.node_process import NotTrusted
from node_device_plugin.support.sockets import status_socket
from node_device_plugin.support.tables import table
from node_device_plugin.support.task_group import TaskGroup

from ..serving import managed

CONFIG = """
kubelet_root_dir: %(here)s
kubelet_device_plugin_dir: %(directory)s
dynamic_cdi_dir: %(here)s/cdi
cdi_spec_dirs: []
resources:
  - name: example.com/dev
    replicas: 2
    devices: [{id: d0, nodes: [{path: /dev/null}]}, {id: d1, required: false, nodes: [{path: /dev/none}]}]
  - {name: example.com/none}
"""
CONTAINERD: dict[str, Any] = {
    "name": "containerd",
    "version": "1.7.24",
    "cdi": {"enabled": True, "always_on": False, "spec_dirs": None},
    "sandbox_image": None,
    "conditions": {"RuntimeReady": True},
}


class Node:
    """A node whose every link is there: kubelet, runtime, specs, the plugin's own socket."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stand_in: StandInKubelet
        self.folder = folder
        self.directory = folder / "device-plugins"
        self.config = folder / "config.yaml"
        self.specs = folder / "cdi"
        self.runtime = copy.deepcopy(CONTAINERD)
        self.runtime["cdi"]["spec_dirs"] = [str(self.specs)]
        self.kubelet: Optional[KubeletProcess] = KubeletProcess(1, "1.36.2", str(folder))
        self.refused: list[str] = []
        self.instances = [10]
        self.config.write_text(CONFIG % {"here": folder, "directory": self.directory})
        self.specs.mkdir()
        for name, spec in cdi.render_specs(load(str(self.config)).configuration.resources).items():
            (self.specs / name).write_text(cdi.serialise(spec))
        monkeypatch.setattr("node_device_plugin.runtime.queries.runtime", self._runtime)
        monkeypatch.setattr(
            "node_device_plugin.diagnostics.doctor.running_kubelet", lambda: (self.kubelet, self.refused)
        )
        monkeypatch.setattr("node_device_plugin.diagnostics.doctor.running_instances", lambda: self.instances)

    async def _runtime(self, socket: str) -> dict[str, Any]:
        self.asked = socket
        if not self.runtime:
            from node_device_plugin.support.channels import grpc

            raise CriError(socket, "report its version", grpc.StatusCode.UNAVAILABLE, "nobody there")
        return self.runtime

    async def serve(self) -> None:
        self.tasks = tasks = TaskGroup()
        loaded = load(str(self.config))
        self.watch = Watch()
        resources = managed(tasks, self.watch)

        async def apply(loaded: LoadedConfiguration) -> None:
            await resources.apply(loaded.configuration)

        self.resources = resources
        self.reloader = Reloader(Source(str(self.config)), loaded, apply)
        await resources.apply(loaded.configuration)
        commands = {"/reload": self.reloader.reload, "/withdraw": self.reloader.withdraw}
        pages = private_pages(State(resources, self.reloader).as_data, commands, {})
        tasks.start(Endpoint(pages, status_socket(str(self.directory))).run())
        tasks.start(self.reloader.run())

    async def stop(self) -> None:
        await self.tasks.stop()
        self.watch.close()

    async def reload(self) -> Outcome:
        """Take the file in as it is now; returns once the kubelet knows every resource."""
        outcome = await self.reloader.reload()
        for resource in self.reloader.loaded.configuration.resources:
            await self.stand_in.registered(resource.name)
        return outcome

    async def wrong(self) -> dict[str, str]:
        """Each link that is wrong, and what was found there."""
        return {each.link: each.found for each in await self.examine() if each.state == "wrong"}

    async def wrongs(self) -> list[Finding]:
        return [each for each in await self.examine() if each.state == "wrong"]

    async def examine(self) -> Findings:
        findings = await Doctor(str(self.config), "/run/x.sock").examine()
        assert all(bool(each.fix) == (each.state in ("wrong", "warning")) for each in findings)
        return findings


@pytest.fixture
async def node(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """With the kubelet's stand-in and the plugin running."""
    given = Node(short_path, monkeypatch)
    async with StandInKubelet(str(given.directory)) as kubelet:
        given.stand_in = kubelet
        await given.serve()
        for name in ("example.com/dev", "example.com/none"):
            await kubelet.registered(name)
        yield given
        await given.stop()


@pytest.mark.parametrize(("folder", "mode"), [("", 0o300), ("node-device-plugin", 0o500)])
async def test_a_directory_in_which_a_service_without_powers_may_not_serve(node: Node, folder: str, mode: int) -> None:
    """root, who runs doctor, may do everything; the service may not."""
    path = node.directory / folder
    path.chmod(mode)
    try:
        (wrong,) = [each for each in await node.wrongs() if each.link == "kubelet directory"]
    finally:
        path.chmod(0o755)
    if os.geteuid() == 0:
        assert wrong.found == "%s: mode %04o, owner 0: the plugin cannot create its sockets there" % (path, mode)
        # Nobody else may open the sockets' directory, which is the instances' lock.
        assert wrong.fix == "chown root %s\nchmod %s %s" % (path, "0700" if folder else "0755", path)
    assert await node.wrong() == {}


async def test_what_hangs_is_named_and_the_rest_is_looked_at(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(doctor, "BoundedCalls", lambda: BoundedCalls(0.2))
    monkeypatch.setattr(health, "host_problem", lambda *_: hangs.wait())
    monkeypatch.setattr(cdi_specs, "check_directories", lambda *_: hangs.wait())
    monkeypatch.setattr(cdi_specs, "_LIMIT", 0.2)
    found = await node.wrong()
    hangs.set()
    assert found == {
        "CDI specs": "reading the CDI specs in %s did not answer in 0.2 s" % node.specs,
        "devices": "d0: the check did not answer in 0.2 s",
    }


def claiming(folder: Path, number: int, words: list[str]) -> None:
    """A process with that command line, as /proc shows it."""
    (folder / str(number)).mkdir(exist_ok=True)
    (folder / str(number) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))


def test_instances_are_the_nodes_own_processes_of_our_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        ["/opt/x/bin/python3", "/opt/x/bin/node-device-plugin", "run", "--config", "/c"],
        ["/usr/bin/python3", "-m", "node_device_plugin", "run"],
        ["node-device-plugin", "run"],
        ["node-device-plugin", "status"],
        ["grep", "node-device-plugin", "x"],
        [],
        ["node-device-plugin", "run"],
    ]
    for number, words in enumerate(lines):
        claiming(tmp_path, number, words)
    (tmp_path / "77").mkdir()
    (tmp_path / "self").mkdir()

    def node_process(pid: int) -> None:
        if pid == 6:
            raise NotTrusted("runs as user 65534")

    monkeypatch.setattr(instances, "PROC", str(tmp_path))
    monkeypatch.setattr(instances, "NodeProcess", node_process)
    assert running_instances() == [0, 1, 2]


async def test_the_plugin_of_a_pod_is_known_by_its_status_socket(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command line that names a configuration is anybody's."""
    claiming(short_path, os.getpid(), ["python3", "/bin/node-device-plugin", "run", "--config=/etc/node1.yaml"])
    for number, namespace in ((1, "pid:[1]"), (os.getpid(), "pid:[2]")):
        (short_path / str(number) / "ns").mkdir(parents=True)
        (short_path / str(number) / "ns" / "pid").symlink_to(namespace)
    monkeypatch.setattr(instances, "PROC", str(short_path))
    asked: list[str] = []
    alone: list[Optional[str]] = [None]
    monkeypatch.setattr(instances, "not_roots_alone", lambda path: asked.append(path) or alone[0])
    assert pods_configuration(str(short_path)) is None
    path = Path(status_socket(str(short_path)))
    path.parent.mkdir()
    async with await asyncio.start_unix_server(lambda reader, writer: writer.close(), str(path)):
        inside = "%s/%d/root/etc/node1.yaml" % (short_path, os.getpid())
        assert pods_configuration(str(short_path)) == inside
        assert asked == [str(path.parent)] * 2
        file = Path(inside)
        file.parent.mkdir(parents=True)
        # As a ConfigMap's volume has it.
        (file.parent / "..data").mkdir()
        (file.parent / "..data" / "node1.yaml").touch()
        file.symlink_to("..data/node1.yaml")
        assert pods_configuration(str(short_path)) == inside
        for target in ("/etc/passwd", "../../../../etc/passwd", "node1.yaml", "..data"):
            file.unlink()
            file.symlink_to(target)
            assert pods_configuration(str(short_path)) is None
        file.unlink()
        os.mkfifo(file)
        assert pods_configuration(str(short_path)) is None
        file.unlink()
        # Its node has no file of its own, so the default counts, unless it leads out of the container.
        words = ["python3", "/bin/node-device-plugin", "run", "--config=/etc/node1.yaml", "--default-config=/etc/all"]
        claiming(short_path, os.getpid(), words)
        assert pods_configuration(str(short_path)) == str(file.with_name("all"))
        file.touch()
        assert pods_configuration(str(short_path)) == inside
        file.with_name("all").symlink_to("/etc/passwd")
        assert pods_configuration(str(short_path)) is None
        alone[0] = "somebody can make a socket there"
        assert pods_configuration(str(short_path)) is None
        alone[0] = None
        # It is in no container.
        (short_path / str(os.getpid()) / "ns" / "pid").unlink()
        (short_path / str(os.getpid()) / "ns" / "pid").symlink_to("pid:[1]")
        assert pods_configuration(str(short_path)) is None


async def test_the_configuration_of_a_pod(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    doctor = "node_device_plugin.diagnostics.doctor."
    monkeypatch.setattr(doctor + "DEFAULT_PATH", "/none/config.yaml")
    monkeypatch.setattr(doctor + "pods_configuration", lambda directory: str(node.config))
    findings = await Doctor("/none/config.yaml", "/run/x.sock").examine()
    assert (findings[0].state, findings.is_healthy) == ("ok", True)
    assert findings[0].found.startswith("%s: 2 resources" % node.config)
    node.config.write_text(node.config.read_text() + "# other bytes\n")
    (plugin,) = [each for each in await Doctor("/none/config.yaml", "/run/x.sock").examine() if each.link == "plugin"]
    # No command names a container's process.
    assert (plugin.state, plugin.fix) == ("wrong", POD.reload)
    # Whoever names another file hears of that one.
    other = await Doctor("/none/other.yaml", "/run/x.sock").examine()
    assert (other[0].state, other[0].found) == ("wrong", "/none/other.yaml: No such file or directory")


async def test_a_machine_that_is_no_node_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor = "node_device_plugin.diagnostics.doctor."
    monkeypatch.setattr(doctor + "DEFAULT_PATH", "/none/config.yaml")
    monkeypatch.setattr(doctor + "running_kubelet", lambda: (None, []))
    monkeypatch.setattr(doctor + "kubelet_places", lambda path: KubeletPlaces("/none/device-plugins", "/none", "/none"))
    (finding,) = await Doctor("/none/config.yaml").examine()
    assert (finding.link, finding.state) == ("node", "wrong")
    assert finding.found == (
        "this machine is not a Kubernetes node: no kubelet runs, "
        "and /none/config.yaml and /none/device-plugins do not exist"
    )


async def test_a_process_that_only_calls_itself_kubelet_is_named(node: Node) -> None:
    node.kubelet = None
    node.refused = ["process 7 calls itself kubelet, but runs as user 1000\x1b[2J"]
    await node.stand_in.stop()
    found = (await node.wrong())["kubelet"]
    assert found == ("no kubelet runs on this node; process 7 calls itself kubelet, but runs as user 1000\\x1b[2J")


async def test_several_processes_of_root_that_call_themselves_kubelet_are_named(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "several processes of root call themselves kubelet: 7 (a.service), 8 (b.service)"

    def unclear() -> None:
        raise NotTrusted(says)

    monkeypatch.setattr("node_device_plugin.diagnostics.doctor.running_kubelet", unclear)
    assert await node.wrong() == {"kubelet": says}


async def test_who_locks_the_plugin_out_is_named(node: Node) -> None:
    await node.stop()
    sockets = node.directory / "node-device-plugin"
    command = ["flock", "--no-fork", str(sockets), "sh", "-c", "echo locked; exec sleep 60"]
    holder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"locked\n"
        while not pathlib.Path(f"/proc/{holder.pid}/cmdline").read_bytes().startswith(b"sleep\0"):
            await asyncio.sleep(0.01)
        (wrong,) = [each for each in await node.wrongs() if each.link == "plugin"]
    finally:
        holder.kill()
        await holder.wait()
    await node.serve()
    says = f"; {sockets} is locked by process {holder.pid} (sleep 60, user "
    assert says in wrong.found
    assert wrong.fix == f"kill {holder.pid}"


ID = "3f6b6b0e-98a2-4c39-8d2f-0c1c3f3c9a11"
FIND = (
    "kubectl get pods --all-namespaces --output "
    f"custom-columns=NAMESPACE:.metadata.namespace,POD:.metadata.name,ID:.metadata.uid | grep {ID}\n"
    "kubectl delete pod --namespace NAMESPACE POD    # its DaemonSet replaces it"
)


def test_a_process_of_a_pod_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet would wait before it starts the container again. A pod is replaced at once."""
    cgroups = {
        7: "0::/system.slice/cron.service",
        # As systemd's driver and the kubelet's own write it, and as a pod may name a cgroup of its own.
        8: f"0::/kubepods.slice/kubepods-pod{ID.replace('-', '_')}.slice/cri-containerd-1.scope",
        9: f"0::/kubepods/burstable/pod{ID}/1",
        10: "0::/kubepods/burstable/pod;reboot/1",
    }
    for pid, text in cgroups.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text + "\n")
    monkeypatch.setattr(instances, "PROC", str(tmp_path))
    assert instances.ending([7, 10, 11]) == "kill 7 10 11"
    assert instances.ending([8]) == instances.ending([8, 9]) == FIND
    assert instances.ending([8, 7]) == f"kill 7\n{FIND}"


async def test_two_instances(node: Node) -> None:
    node.instances = [10, 20]
    (wrong,) = await node.wrongs()
    assert (wrong.link, wrong.found) == (
        "plugin",
        "several plugins run (processes 10 20): one serves, and the others wait",
    )
    assert wrong.fix.endswith("ps -o pid,args -p 10,20")


LINKS = [
    "configuration",
    "runtime",
    "CDI",
    "CDI specs",
    "kubelet",
    "devices",
    "kubelet directory",
    "kubelet socket",
    "plugin",
    "root directory",
    "registration",
    "expected devices",
]


async def test_a_node_where_all_is_well(node: Node) -> None:
    findings = await node.examine()
    assert [(each.link, each.state) for each in findings] == [(link, "ok") for link in LINKS]
    assert findings.is_healthy
    text = findings.to_text().splitlines()
    assert text[0].split() == ["LINK", "STATE", "FOUND"]
    assert text[2].split() == ["runtime", "ok", "containerd", "1.7.24"]
    # The table shortens one finding.
    optional = "optional devices that are not there: example.com/dev=d1: /dev/none: No such file or directory"
    assert text[1 + len(LINKS) :] == ["", f"expected devices: no device is lost; {optional}"]
    assert findings.to_data()["healthy"] is True


async def test_a_checkpoint_that_misses_a_resource_is_no_finding(node: Node) -> None:
    """Of registrations at the same time, the checkpoint may miss some until the kubelet's next write."""
    written = checkpoint.read(str(node.directory))
    assert written is not None
    del written.registered["example.com/none"]
    checkpoint.write(str(node.directory), written)
    assert "registration" not in await node.wrong()


async def test_a_bad_configuration(node: Node) -> None:
    node.config.write_text("resources: [{name: x}, {nmae: y}]")
    findings = await node.examine()
    assert findings[0].state == "wrong"
    assert findings[0].found.startswith("resources[0] (x).name")
    assert findings[0].found.endswith("(and 2 more)")
    assert "node-device-plugin validate" in findings[0].fix


async def test_the_runtime(node: Node) -> None:
    node.runtime["cdi"]["enabled"] = False
    assert await node.wrong() == {"CDI": "CDI is off in the running containerd: containers start without their devices"}
    node.runtime["version"] = "v2.3.7"
    off = "CDI is off in the running containerd: containers cannot be created with their devices"
    assert await node.wrong() == {"CDI": off}
    node.runtime["cdi"]["enabled"] = None
    assert await node.wrong() == {}
    node.runtime["cdi"].update(enabled=True, always_on=True)
    (said,) = [finding.found for finding in await node.examine() if finding.link == "CDI"]
    assert said == "always on, spec directories %s" % node.specs
    node.runtime["conditions"]["RuntimeReady"] = False
    assert list(await node.wrong()) == ["runtime"]
    node.runtime["version"] = "1.6.20"
    assert list(await node.wrong()) == ["runtime", "CDI"]
    node.kubelet = KubeletProcess(1, "1.28.9", str(node.folder))
    node.runtime["conditions"]["RuntimeReady"] = True
    text = node.config.read_text()
    by_nodes = text.replace("replicas: 2", "injection: device_nodes")
    node.config.write_text(by_nodes.replace("com/none}", "com/none, injection: device_nodes}"))
    without_cdi = {each.link: each for each in await node.examine()}
    assert without_cdi["CDI"].found == "not needed: every resource has injection: device_nodes"
    assert [without_cdi[link].state for link in ("runtime", "CDI", "kubelet")] == ["ok", "ok", "ok"]
    node.config.write_text(text)
    node.kubelet = KubeletProcess(1, "1.36.2", str(node.folder))
    node.runtime = {}
    node.config.write_text(node.config.read_text().replace("cdi_spec_dirs: []", "cdi_spec_dirs: [%s]" % node.specs))
    wrong = await node.wrong()
    assert "nobody there" in wrong["runtime"]
    # Then the configuration says where the specs are.
    assert list(wrong) == ["runtime", "plugin"]


async def test_the_specs(node: Node) -> None:
    """Complaint 10: specs that are lost, or that others cannot read."""
    (spec,) = node.specs.iterdir()
    spec.chmod(0o600)
    (wrong,) = await node.wrongs()
    assert (wrong.link, wrong.fix.splitlines()[0]) == ("CDI specs", "chmod 0644 %s" % spec)
    spec.chmod(0o644)
    # A foreign file with one of our names: theirs has to go, whichever comes first.
    for name in ("a.json", "z.json"):
        (node.specs / name).write_text(spec.read_text())
        (wrong,) = await node.wrongs()
        assert wrong.found.startswith(
            "%s: device example.com/dev=d0: is also defined in %s" % (node.specs / name, spec)
        )
        assert wrong.fix.startswith("mv %s " % (node.specs / name))
        (node.specs / name).unlink()
    text = spec.read_text()
    spec.write_text("{")
    (wrong,) = await node.wrongs()
    assert wrong.fix.startswith("ansible-playbook ")
    spec.write_text(text)
    (node.specs / "foreign.json").write_text('{"cdiVersion": "0.3.0", "kind": "3v/class", "devices": []}')
    # It is none of our devices' concern, and site.yml warns of it in the same words.
    findings = await node.examine()
    assert findings.is_healthy
    (warned,) = [each for each in findings if each.state == "warning"]
    assert warned.found.startswith("another owner's file; our devices work: %s: kind: " % (node.specs / "foreign.json"))
    assert warned.found.endswith("(and 1 more)")
    assert warned.fix in findings.to_text().replace("\n    ", "\n")
    # A runtime with CDI reads every file, and this one would keep it from starting.
    (node.specs / "foreign.json").write_text('{"cdiVersion": "0.3.0", "kind": "vendor.com/x", "devices": []}')
    (wrong,) = await node.wrongs()
    assert (wrong.link, "crashes containerd's parser" in wrong.found) == ("CDI specs", True)
    assert wrong.fix.startswith("mv %s " % (node.specs / "foreign.json"))
    (node.specs / "foreign.json").unlink()
    spec.unlink()
    assert (await node.wrong())["CDI specs"].endswith("defines example.com/dev=d0, example.com/dev=d1")


async def test_a_name_without_quotes_in_a_spec_of_others(node: Node) -> None:
    spec = node.specs / "npu.yaml"
    spec.write_text("cdiVersion: 0.6.0\nkind: vendor.com/npu\ndevices: [{name: 010, containerEdits: {env: [A=b]}}]\n")
    problem = f"{spec}: devices[0].name: is not quoted: the CDI library up to 1.1.0 (containerd 1.7 to 2.3) reads '8'"
    findings = await node.examine()
    (warned,) = [each for each in findings if each.state == "warning"]
    assert warned.found.startswith(f"another owner's file; our devices work: {problem}")
    assert warned.fix.startswith(f"vi {spec} ")
    devices = [{"id": "a", "cdi_devices": ["vendor.com/npu=010"]}]
    configuration = parse_configuration({"resources": [{"name": "example.com/npu", "devices": devices}]})
    assert doctor._unresolved(list(check_directories([str(node.specs)], None)), configuration) == ["vendor.com/npu=010"]


def test_an_optional_device_of_others_needs_no_spec() -> None:
    devices = [{"id": name, "required": name == "a", "cdi_devices": [f"vendor.com/gpu={name}"]} for name in "ab"]
    configuration = parse_configuration({"resources": [{"name": "example.com/gpu", "devices": devices}]})
    assert doctor._unresolved([], configuration) == ["vendor.com/gpu=a"]


async def test_a_spec_of_others_that_overrides_ours(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    dynamic = node.folder / "dynamic"
    dynamic.mkdir()
    node.runtime["cdi"]["spec_dirs"].append(str(dynamic))
    (ours,) = node.specs.iterdir()
    foreign = json.loads(ours.read_text())
    (dynamic / "foreign.json").write_text(json.dumps(foreign))
    assert await node.wrong() == {}
    foreign["devices"][0]["containerEdits"] = {"env": ["STOLEN=1"]}
    (dynamic / "foreign.json").write_text(json.dumps(foreign))
    (wrong,) = await node.wrongs()
    says = (
        "device example.com/dev=d0: overrides the same name in %s, so that containers get the device of this file"
        % ours
    )
    assert (wrong.link, wrong.found) == ("CDI specs", "%s: %s" % (dynamic / "foreign.json", says))
    assert wrong.fix.startswith("mv %s " % (dynamic / "foreign.json"))


async def test_the_kubelet(node: Node) -> None:
    node.kubelet = KubeletProcess(1, "1.28.9", str(node.folder))
    assert (await node.wrong())["kubelet"].startswith("kubelet 1.28.9 silently drops CDI names; use 1.29 or later")
    for version, ending in (
        ("1.30.14", "; this project is not tested with kubelets older than 1.31"),
        ("1.31.0", ""),
    ):
        node.kubelet = KubeletProcess(1, version, str(node.folder))
        (kubelet,) = [each for each in await node.examine() if each.link == "kubelet"]
        found = "%s, root directory %s%s" % (version, node.folder, ending)
        assert (kubelet.state, kubelet.found) == ("ok", found)
    node.kubelet = KubeletProcess(1, None, str(node.folder))
    assert await node.wrong() == {}
    node.kubelet = KubeletProcess(1, "1.36.2+stand-in", str(node.folder))
    (kubelet,) = [each for each in await node.examine() if each.link == "kubelet"]
    assert kubelet.found == "the lab's stand-in, root directory %s" % node.folder
    node.kubelet = None
    (kubelet,) = [each for each in await node.examine() if each.link == "kubelet"]
    assert (kubelet.state, kubelet.found.split(";")[0]) == ("ok", "a kubelet answers below %s" % node.folder)
    await node.stand_in.stop()
    assert (await node.wrong())["kubelet"] == "no kubelet runs on this node"
    await node.stand_in.start()


async def test_another_root_directory(node: Node) -> None:
    """Complaint 5: where the kubelet's directories are."""
    node.kubelet = KubeletProcess(1, "1.36.2", "/data/kubelet")
    wrong = await node.wrong()
    assert (
        wrong["root directory"]
        == "the kubelet's --root-dir is /data/kubelet, but the configuration has %s" % node.folder
    )
    assert wrong["registration"] == "no kubelet answers below /data/kubelet"


async def test_the_other_way_in(node: Node) -> None:
    node.config.write_text("registration: plugins_registry\n" + node.config.read_text())
    folder = node.folder / "plugins_registry"
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()
    assert (await node.wrong())["kubelet socket"].startswith("%s does not exist" % folder)
    folder.mkdir()
    assert "kubelet socket" not in await node.wrong()


async def test_no_plugin_and_no_kubelet(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Node(short_path, monkeypatch)
    wrong = await given.wrong()
    assert list(wrong) == ["kubelet directory", "kubelet socket", "plugin", "registration"]
    assert "no plugin answers at %s" % status_socket(str(given.directory)) in wrong["plugin"]
    async with StandInKubelet(str(given.directory)):
        wrong = await given.wrong()
        assert list(wrong) == ["plugin", "registration"]
        assert wrong["registration"] == "the kubelet does not know example.com/dev, example.com/none"


async def test_a_configuration_that_is_not_in_force(node: Node) -> None:
    node.config.write_text(node.config.read_text() + "log_level: debug\n")
    assert (await node.wrong())["plugin"].startswith("the plugin runs with configuration ")


async def test_a_device_node_that_is_missing(node: Node) -> None:
    node.config.write_text(node.config.read_text().replace("/dev/null", "/dev/nothing"))
    assert (await node.wrong())["devices"] == "d0: /dev/nothing: No such file or directory"


async def test_status_shows_devices_and_who_holds_them(node: Node) -> None:
    await node.stand_in.allocate_pod("holder", {"main": {"example.com/dev": 1}})
    found = await status(kubelet_places(str(node.config)))
    lines = found.to_text().splitlines()
    assert lines[1] == "ready"
    assert lines[3].split() == ["RESOURCE", "DEVICE", "STATE", "HELD", "BY", "REASON"]
    cells = [line.split() for line in lines[4:]]
    assert cells[0][:3] == ["example.com/dev", "d0", "healthy"]
    assert cells[0][3].endswith("/main")
    assert cells[1] == ["example.com/dev", "d1", "absent", "-", "/dev/none:", "No", "such", "file", "or", "directory"]
    assert cells[2] == ["example.com/none", "-", "no", "devices", "-", "-"]
    assert found.is_fine
    data = json.loads(json.dumps(found.to_data()))
    assert data["plugin"]["resources"][0]["devices"][0]["kubelet_ids"] == ["d0::0", "d0::1"]
    assert data["plugin"]["resources"][0]["registered_seconds"] >= 0
    assert data["held"][0]["resource"] == "example.com/dev"


MORE = "min_devices: 2, discover: {paths: [/nowhere/*]}"
REASON_LOST = """
  - name: example.com/opt
    devices:
      - {id: opt0, required: false, nodes: [{path: /dev/opt0, host_path: /dev/zero, major: 99}]}
      - {id: opt1, required: false, nodes: [{path: /dev/opt1, host_path: /dev/full}],
         container_edits: {mounts: ["/opt/nowhere:/opt/nowhere"]}}
"""


async def test_the_reason_of_a_device_that_never_passed_is_told_everywhere(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """podman#26233: "absent", "the device is not on this node", although the node is there and is another device."""
    text = node.config.read_text().replace("cdi_spec_dirs: []", f"cdi_spec_dirs: [{node.specs}]")
    node.config.write_text(f"{text.rstrip()}{REASON_LOST}".replace(f"{node.folder}/cdi", str(node.specs)))
    for name, spec in cdi.render_specs(load(str(node.config)).configuration.resources).items():
        (node.specs / name).write_text(cdi.serialise(spec))
    assert (await node.reload()).result == "applied"
    number = "/dev/zero: expected any 99:any, found c 1:5"
    mount = (
        "/opt/nowhere: the mount of its CDI spec does not exist, so no container with example.com/opt=opt1 starts: "
        "create it, or change the declaration"
    )
    lines = [" ".join(each.split()) for each in (await status(kubelet_places(str(node.config)))).to_text().splitlines()]
    assert f"example.com/opt opt0 absent - {number}" in lines
    assert f"example.com/opt opt1 absent - {mount}" in lines
    assert await asyncio.to_thread(main, ["discover", "--config", str(node.config)]) == 0
    shown = capsys.readouterr().out
    assert (number in shown, mount in shown) == (True, True)
    (found,) = [each for each in await node.examine() if each.link == "expected devices"]
    # The optional device d1 is nowhere, so nobody must do anything about it.
    assert (found.state, found.found) == ("warning", f"example.com/opt=opt0: {number}; example.com/opt=opt1: {mount}")


async def test_status_and_doctor_name_what_is_lost(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.config.write_text(node.config.read_text().replace("name: example.com/none", "name: example.com/none, " + MORE))
    assert (await node.reload()).result == "applied"
    await node.stand_in.allocate_pod("holder", {"main": {"example.com/dev": 1}})
    found = await status(kubelet_places(str(node.config)))
    few = "example.com/none: expected at least 2 devices (min_devices), found 0"
    assert (found.is_fine, found.to_text().splitlines()[-1]) == (False, f"problem: {few}")
    assert found.to_data()["losses"] == [
        {"resource": "example.com/none", "device": "", "text": few.partition(": ")[2], "fails": True}
    ]
    assert (await node.wrong())["expected devices"] == few

    async def without(*_: object) -> list[Loss]:
        return [Loss("example.com/dev", "", "default/hold runs without a device")]

    monkeypatch.setattr("node_device_plugin.diagnostics.status.unserved", without)
    lines = (await status(kubelet_places(str(node.config)))).to_text().splitlines()
    assert lines[-2] == "problem: example.com/dev: default/hold runs without a device"
    assert (await node.wrong())["expected devices"].startswith("example.com/dev: default/hold runs without a device")


async def test_a_held_device_that_is_lost_is_named_by_both(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.stand_in.allocate_pod("holder", {"main": {"example.com/dev": 1}})
    assert (await status(kubelet_places(str(node.config)))).losses == []
    monkeypatch.setattr("node_device_plugin.devices.health.checks.unhealthy_reason", lambda _device: "unplugged")
    await node.resources.check()
    (loss,) = (await status(kubelet_places(str(node.config)))).losses
    holds = "default/holder-node holds it, but it is lost: unplugged"
    assert (loss.resource, loss.device[:4], loss.text) == ("example.com/dev", "d0::", f"{loss.device}: {holds}")
    assert (await node.wrong())["expected devices"] == f"example.com/dev: {loss.text}"


@pytest.mark.parametrize("kind", [HELD_BY_ANOTHER_NAME, IN_DOUBT, MET, MOVED_AWAY])
async def test_a_device_that_is_withheld_for_its_holders_is_not_lost(node: Node, kind: str) -> None:
    await node.stand_in.allocate_pod("holder", {"main": {"example.com/dev": 1}})
    (table,) = [each for each in node.resources.tables if each.resource.name == "example.com/dev"]
    table.set_held({"d0": Reason("held by default/holder-node as example.com/old", kind)})
    found = await status(kubelet_places(str(node.config)))
    assert found.plugin is not None
    shown = found.plugin["resources"][0]["devices"][0]
    assert (shown["state"], shown["withheld"], found.losses) == ("unhealthy", True, [])


async def test_a_damaged_checkpoint_is_written_again_as_the_message_says(node: Node) -> None:
    """A disk that was full cut it off; an uninstall then stopped without naming a way out."""
    pod = await node.stand_in.allocate_pod("holder", {"main": {"example.com/dev": 1}})
    path = node.directory / FILE_NAME
    held = read_checkpoint(str(node.directory))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="run systemctl restart node-device-plugin;") as caught:
        read_checkpoint(str(node.directory))
    assert (await node.wrong())["registration"] == str(caught.value)
    await node.stop()
    await node.serve()
    await node.stand_in.registered("example.com/dev")
    await node.stand_in.until(lambda: path.read_bytes()[-1:] == b"}")
    again = read_checkpoint(str(node.directory))
    assert held is not None
    assert again is not None
    assert again.pod_devices == held.pod_devices
    assert [each.pod_uid for each in again.pod_devices] == [pod.uid]
    await node.stand_in.registered("example.com/none")
    assert await node.wrong() == {}


async def test_a_container_that_holds_several_shares_is_one_holder(node: Node) -> None:
    await node.stand_in.allocate_pod("holder", {"main": {"example.com/dev": 2}})
    found = (await status(kubelet_places(str(node.config)))).to_text()
    assert "  default/holder-node/main (2)  " in found


async def test_status_lists_what_discovery_left_out(node: Node) -> None:
    (node.folder / "lamp0").write_text("")
    text = node.config.read_text()
    node.config.write_text(f"{text}  - {{name: example.com/lamp, discover: {{paths: [{node.folder}/lamp*]}}}}\n")
    assert (await node.reload()).result == "applied"
    (line,) = [
        each for each in (await status(kubelet_places(str(node.config)))).to_text().splitlines() if "lamp" in each
    ]
    assert line.split()[2:5] == ["left", "out", "-"]
    assert line.endswith(f"{node.folder}/lamp0 is neither a device node nor a link to one")


async def test_status_has_the_reason_of_a_resource_whose_search_has_not_finished(node: Node) -> None:
    for each in node.resources.tables:
        each.late = "discovery by paths did not answer in 2 s"
        text = (await status(kubelet_places(str(node.config)))).to_text()
        (line,) = [line for line in text.splitlines() if line.endswith("discovery by paths did not answer in 2 s")]
        assert line.split()[:2] == [each.resource.name, "-"]
        assert "searching" in line
        each.late = None


async def test_status_of_a_refused_configuration(node: Node) -> None:
    node.config.write_text(
        "kubelet_device_plugin_dir: %s\nkubelet_root_dir: %s\nresources: [{name: x}]" % (node.directory, node.folder)
    )
    await node.reloader.reload()
    found = await status(kubelet_places(str(node.config)))
    assert not found.is_fine
    assert found.to_text().splitlines()[2:4] == [
        "%s is refused, and an older configuration is in use:" % node.config,
        "  " + found.to_data()["plugin"]["configuration"]["problems"][0],
    ]


async def test_status_where_plugin_and_kubelet_hang(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked once, and both at a time; they take the question and say nothing."""
    monkeypatch.setattr(pod_resources, "_TIMEOUT", 0.5)
    monkeypatch.setitem(client._TIMEOUT, "GET", 0.5)
    config = short_path / "config.yaml"
    config.write_text(CONFIG % {"here": short_path, "directory": short_path / "dp"})
    places = kubelet_places(str(config))
    kubelet = os.path.join(places.root_dir, POD_RESOURCES_SOCKET)
    # Whoever is asked second is asked while the first one is still waited for.
    asked: list[str] = []
    both = asyncio.Event()
    given_up: list[bool] = []

    def hanging(name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(name)
            if len(asked) == 2:
                both.set()
            while await reader.read(4096):
                pass
            given_up.append(both.is_set())
            writer.close()

        return hang

    async with contextlib.AsyncExitStack() as stack:
        for name, socket in (("plugin", status_socket(places.device_plugin_dir)), ("kubelet", kubelet)):
            Path(socket).parent.mkdir(parents=True)
            await stack.enter_async_context(await asyncio.start_unix_server(hanging(name), socket))
        found = (await status(places)).to_data()
    assert sorted(asked) == ["kubelet", "plugin"]
    assert given_up[0] is True
    assert "no answer in 0.5 s" in found["problem"]
    assert found["source"] == "none"
    assert found["unanswered"] == "%s: DEADLINE_EXCEEDED: Deadline Exceeded" % kubelet


def test_status_without_a_plugin_shows_holders() -> None:
    held = HeldDevice("example.com/dev", "d0", "", "uid", "main")
    found = Status(None, "no plugin answers", Holders("checkpoint", (held,)))
    assert found.to_text().splitlines() == [
        "no plugin answers",
        "no kubelet answers; holders are from its checkpoint, which names pods by UID only",
        "",
        "RESOURCE         DEVICE  STATE  HELD BY   REASON",
        "example.com/dev  d0      -      uid/main  -",
    ]
    assert not found.is_fine
    nobody = Status(None, "no plugin answers", Holders("kubelet"))
    assert nobody.to_text().splitlines() == ["no plugin answers", "", "no held devices are known"]


def test_status_shows_the_api_and_the_claims() -> None:
    camera = {
        "name": "example.com/camera",
        "api": "dra",
        "registered": True,
        "problem": "the API server does not answer",
        "devices": [{"id": "c0", "state": "healthy", "reason": None, "kubelet_ids": ["c0"], "host_paths": []}],
        "refused": {},
    }
    # An earlier release's plugin does not tell the API.
    lamp = {**camera, "name": "example.com/lamp", "problem": None}
    del lamp["api"]
    plugin = {
        "version": "0.3",
        "started": 0.0,
        "ready": True,
        "not_ready": [],
        "configuration": {"sha256": "0" * 64, "problems": []},
        "resources": [camera, lamp],
    }
    held = HeldDevice("example.com/camera", "c0", "default", "viewer", "main", claim="default/c0")
    unseen = HeldDevice("example.com/camera", "c0", "", "", "", claim="default/other")
    lines = Status(plugin, "", Holders("kubelet", (held, unseen))).to_text().splitlines()
    assert [" ".join(line.split()) for line in lines[3:]] == [
        "RESOURCE API DEVICE STATE HELD BY REASON",
        "example.com/camera dra c0 healthy default/viewer/main (claim default/c0), (claim default/other) -",
        "example.com/lamp device_plugin c0 healthy - -",
        "warning: example.com/camera: the API server does not answer",
    ]


CAMERA = """
  - {name: example.com/camera, api: dra, devices: [{id: c0, nodes: [{path: /dev/c0, host_path: /dev/null}]}]}
dra: {node: worker}
"""


class _Driver:
    """The frontend for DRA as a manager meets it. problem: of its resources."""

    problem: Optional[str] = None
    is_registered = True

    def __getattr__(self, _name: str) -> Any:
        async def nothing(*_: object) -> Any:
            return True

        return nothing

    def without_room(self, *_: object) -> dict[str, str]:
        return {}

    def listed_ids(self, _resource: object, device: Any) -> list[str]:
        return [device.id]

    async def held(self, *_: object) -> Held:
        return Held([], frozenset(), frozenset(), True)

    def status(self, _resource: str) -> ResourceStatus:
        return ResourceStatus(self.is_registered, 1.0 if self.is_registered else None, self.problem, 0)


async def test_doctor_checks_what_a_driver_needs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    def read(driver: Any) -> Any:
        assert driver.node == "worker"
        if isinstance(shown[-1], Exception):
            raise shown[-1]
        return shown

    monkeypatch.setattr("node_device_plugin.kubelet.dra.queries.read_slices", read)
    assert [each for each in await node.examine() if each.link == "DRA"] == []
    driver = _Driver()
    node.resources._frontends["dra"] = driver  # type: ignore[index,assignment]
    node.config.write_text(node.config.read_text() + CAMERA)
    assert (await node.reloader.reload()).result == "applied"

    async def dra() -> Finding:
        (found,) = [each for each in await node.examine() if each.link == "DRA"]
        return found

    shown.append({"spec": {"devices": [{"name": "one", "attributes": {"resource": {"string": "example.com/camera"}}}]}})
    assert await dra() == Finding("DRA", "ok", "driver nodedevices.kubernetes, 1 ResourceSlice with 1 device")
    driver.problem = "the API server changed ResourceSlice x"
    assert (await dra()).state == "warning"
    driver.problem, driver.is_registered = None, False
    found = await dra()
    assert (found.state, found.found) == ("wrong", "the kubelet has not registered the driver nodedevices.kubernetes")
    driver.problem = "the kubelet refused the registration: unknown"
    assert (await dra()).found == "example.com/camera: the kubelet refused the registration: unknown"
    shown.append(LacksRights("User may not list resourceslices"))
    assert (await dra()).found == "User may not list resourceslices"
    shown.append(NotFound("the cluster has no resourceslices"))
    assert (await dra()).found.endswith("the cluster is older than Kubernetes 1.34, or DRA is off there")

    async def nobody(*_: object) -> Any:
        raise client.NotAnswering("no plugin answers")

    with monkeypatch.context() as patched:
        patched.setattr(client, "ask", nobody)
        (registration,) = [each for each in await node.examine() if each.link == "registration"]
        assert registration.found == "the kubelet still lists every resource, but no plugin answers"
    node.kubelet = KubeletProcess(1, "1.34.0", str(node.folder), dra_is_off=True)
    assert (await dra()).found == "the kubelet's feature gate DynamicResourceAllocation is off"
    node.kubelet = KubeletProcess(1, "1.33.5", str(node.folder))
    assert (await dra()).found == "kubelet 1.33.5 does not know the API v1 of DRA drivers; use 1.34 or later"


def test_the_commands_without_a_node(short_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = short_path / "config.yaml"
    config.write_text(CONFIG % {"here": short_path, "directory": short_path / "dp"})
    assert main(["status", "--config", str(config), "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["plugin"] is None
    assert main(["status", "--config", str(config)]) == 1
    assert "no plugin answers at" in capsys.readouterr().out
    arguments = ["doctor", "--config", str(config), "--socket", str(short_path / "none"), "--kubelet-root", "/x"]
    assert main([*arguments, "-o", "json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [each["link"] for each in findings] == LINKS
    assert main(arguments) == 1
    assert "\nruntime: the container runtime at" in capsys.readouterr().out


def kubelet_that(prints: Optional[str], *arguments: str) -> Optional[KubeletProcess]:
    """What is read of a kubelet process with these arguments, which prints that when it is asked its version."""

    class Process:
        pid, unit = 77, None

        def __init__(self) -> None:
            self.arguments = ["/usr/bin/kubelet", *arguments]

        def run(self, argument: str) -> tuple[Optional[str], Optional[str]]:
            assert argument == "--version"
            return prints, None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubelet_process, "named", lambda name: ([Process()], []))
        kubelet, refused = running_kubelet()
    assert refused == []
    return kubelet


def test_the_running_kubelet() -> None:
    found = kubelet_that("Kubernetes v1.36.2", "--root-dir", "/data/kubelet")
    assert found == KubeletProcess(77, "1.36.2", "/data/kubelet")


def test_the_labs_stand_in_is_known_by_the_build_in_its_version() -> None:
    found = kubelet_that("Kubernetes v1.36.2+stand-in")
    assert found == KubeletProcess(77, "1.36.2+stand-in", "/var/lib/kubelet")


def test_the_runtime_that_the_kubelet_uses(tmp_path: Path) -> None:
    def socket(configuration: str = "", *more: str) -> Optional[str]:
        (tmp_path / "kubelet.yaml").write_text(configuration)
        found = kubelet_that("v1.36.2", "--config=%s" % (tmp_path / "kubelet.yaml"), *more)
        return found.cri_socket if found else ""

    endpoint = "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n"
    assert socket(endpoint) == "/run/crio/crio.sock"
    assert socket(endpoint, "--container-runtime-endpoint=/run/x.sock") == "/run/x.sock"
    assert socket(endpoint.replace("///", "/")) == "/run/crio/crio.sock"
    added = "--container-runtime-endpoint=unix:/run/y.sock"
    assert socket("", "--container-runtime-endpoint=/run/x.sock", added) == "/run/y.sock"
    # The default of the flag, which the roles use, too.
    default = "/run/containerd/containerd.sock"
    assert socket("kind: KubeletConfiguration\n") == socket("{") == default
    assert socket("containerRuntimeEndpoint: tcp://127.0.0.1:1\n") == default
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10.conf").write_text(endpoint)
    assert socket("kind: KubeletConfiguration\n", "--config-dir=%s" % (tmp_path / "conf.d")) == "/run/crio/crio.sock"
    unreadable = kubelet_that("v1.36.2", "--config=/none")
    assert unreadable is not None
    assert unreadable.cri_socket is None


async def test_doctor_asks_the_runtime_that_the_kubelet_uses(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node_device_plugin.support.kubelet_process.likely_socket", lambda: "/run/likely.sock")
    for kubelet, given, asked in (
        (None, None, "/run/likely.sock"),
        ("/run/crio/crio.sock", None, "/run/crio/crio.sock"),
        ("/run/crio/crio.sock", "/run/y.sock", "/run/y.sock"),
        ("/run/crio/crio.sock", "unix:/run/y.sock", "/run/y.sock"),
    ):
        node.kubelet = KubeletProcess(1, "1.36.2", str(node.folder), cri_socket=kubelet)
        await Doctor(str(node.config), given).examine()
        assert node.asked == asked


@pytest.mark.parametrize(
    ("socket", "runtime", "kubelet"),
    [("/run/crio/crio.sock", "crio", "kubelet"), ("/run/k0s/containerd.sock", "k0sworker", "k0sworker")],
)
async def test_doctor_names_the_services_of_this_node(node: Node, socket: str, runtime: str, kubelet: str) -> None:
    async def fixes() -> dict[str, str]:
        return {each.link: each.fix for each in await Doctor(str(node.config), socket).examine()}

    node.kubelet = None
    node.runtime["conditions"] = {"RuntimeReady": False}
    assert (await fixes())["runtime"] == "journalctl --unit %s" % runtime
    node.runtime["version"] = "1.6.20"
    outdated = "systemctl status {0}    # upgrade {0}: it ships its own containerd".format(runtime)
    assert (await fixes())["runtime"] == outdated
    node.runtime = {}
    await node.stand_in.stop()
    found = await fixes()
    assert found["runtime"].startswith("journalctl --unit %s --lines 20\nsystemctl restart %s " % (runtime, runtime))
    assert found["kubelet"] == "systemctl start %s\njournalctl --unit %s --lines 50" % (kubelet, kubelet)
    assert found["kubelet socket"] == "systemctl restart %s" % kubelet
    assert found["registration"].startswith("systemctl start %s\n" % kubelet)


def test_a_kubelet_that_tells_no_version_and_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kubelet_that("nonsense") == kubelet_that(None) == KubeletProcess(77, None, "/var/lib/kubelet")
    monkeypatch.setattr(kubelet_process, "named", lambda name: ([], ["process 7 calls itself kubelet"]))
    assert running_kubelet() == (None, ["process 7 calls itself kubelet"])


def test_tables() -> None:
    rows: list[list[str]] = [["a", "", "long one"], ["bbb", "c", ""]]
    assert table(["X", "YY", "Z"], rows) == "X    YY  Z\na    -   long one\nbbb  c   -"


def test_a_cell_never_ends_its_line() -> None:
    assert table(["A", "B"], [["x\ny", "ü"], ["\udcff\t", "z"]]).split("\n") == [
        "A         B",
        r"x\ny      ü",
        r"\udcff\t  z",
    ]
