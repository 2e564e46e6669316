"""What comes and goes on the node, as tables, CDI specs and the kubelet see it."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Callable

import pytest

from node_device_plugin.cdi import directories, writer
from node_device_plugin.declaration import Device, parse_configuration, parse_resources
from node_device_plugin.devices import our_specs
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.devices.health import Health
from node_device_plugin.devices.scanner import DeviceScanner
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.support.bounded_calls import NoAnswer

FILE = "node-device-plugin_example.com_dev.json"
#: Somebody else's spec of a device that is declared here.
SPEC = """{"cdiVersion": "0.3.0", "kind": "example.com/dev",
 "devices": [{"name": "d", "containerEdits": {"env": ["A=b"]}}]}"""


@pytest.fixture(autouse=True)
def files_count_as_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not everybody may make device nodes; the real thing is tested in test_plugin."""
    monkeypatch.setattr("node_device_plugin.devices.discovery.root.stat.S_ISCHR", lambda mode: True)
    monkeypatch.setattr("node_device_plugin.devices.health.nodes.stat.S_ISCHR", lambda mode: True)


class Node:
    def __init__(self, folder: Path) -> None:
        self.dev = folder / "dev"
        self.dev.mkdir()
        self.cdi = str(folder / "cdi")
        self.watch = Watch()
        self.scanner = DeviceScanner(self.watch)
        directories = {"kubelet_device_plugin_dir": str(folder / "dp"), "dynamic_cdi_dir": self.cdi}
        self.scanner.configuration = parse_configuration({**directories, "cdi_spec_dirs": [], "resources": []})
        self.tables: dict[str, DeviceTable] = {}

    def declare(self, *resources: dict[str, Any]) -> None:
        self.tables = {resource.name: DeviceTable(resource) for resource in parse_resources(list(resources))}

    def runtime_reads(self, specs: Path) -> None:
        """The runtime reads this directory of CDI specs. Without a call, the plugin checks no CDI name."""
        self.scanner.configuration = self.scanner.configuration._replace(cdi_spec_dirs=(str(specs),))

    async def scan(self) -> None:
        await self.scanner.scan(list(self.tables.values()))

    async def nobody_holds(self) -> None:
        """The kubelet's answer, and the scan that follows it."""
        if await self.scanner.answer(list(self.tables.values()), self.scanner.given.ask(), ()):
            await self.scan()

    def listed(self, name: str = "example.com/dev") -> dict[str, bool]:
        """The front of an id is the folder's path."""
        return {device.id.rpartition("-dev-")[2]: reason is None for device, reason in self.tables[name].shown()}

    def discovering(self, *patterns: str, **more: Any) -> dict[str, Any]:
        return {
            "name": "example.com/dev",
            "discover": {"paths": ["%s/%s" % (self.dev, pattern) for pattern in patterns]},
            **more,
        }


@pytest.fixture
async def node(short_path: Path) -> AsyncIterator[Node]:
    made = Node(short_path)
    yield made
    made.watch.close()


async def test_what_is_unplugged_is_unhealthy_and_recovers(node: Node) -> None:
    """Complaint 6 (NVIDIA#189, squat#61): unplugging is not noticed, and unhealthy never recovers."""
    node.declare(node.discovering("tty*"))
    await node.scan()
    assert node.listed() == {}
    (node.dev / "tty0").touch()
    (node.dev / "tty1").touch()
    await node.scan()
    assert node.listed() == {"tty0": True, "tty1": True}
    (node.dev / "tty0").unlink()
    await node.scan()
    assert node.listed() == {"tty0": False, "tty1": True}
    (node.dev / "tty0").touch()
    await node.scan()
    assert node.listed() == {"tty0": True, "tty1": True}


async def test_the_spec_is_there_before_the_device_is_listed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.declare(node.discovering("tty*"))
    (node.dev / "tty0").touch()
    seen: list[bool] = []
    real = Health.check

    def check(*arguments: Any) -> Any:
        seen.append(os.path.exists(os.path.join(node.cdi, FILE)))
        assert node.listed() == {}
        return real(*arguments)

    monkeypatch.setattr(Health, "check", check)
    await node.scan()
    assert seen == [True]
    assert node.listed() == {"tty0": True}


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next scan repeats a failed write."""
    monkeypatch.setattr(our_specs, "_FIRST_PAUSE", 0.0)


async def test_a_device_whose_spec_cannot_be_written_is_not_given_away(node: Node, without_pauses: None) -> None:
    devices = [{"id": "plain"}, {"id": "d", "nodes": [{"path": "/dev/null"}]}]
    node.declare(node.discovering("tty*", devices=devices, env={"DEV_{index}": "{id}"}))
    (node.dev / "tty0").touch()
    Path(node.cdi).touch()
    await node.scan()
    assert node.listed() == {"plain": True, "d": False}
    table = node.tables["example.com/dev"]
    assert "cannot write the CDI spec" in str(table.reason(table.resource.devices[1]))
    Path(node.cdi).unlink()
    await node.scan()
    assert node.listed() == {"plain": True, "d": True, "tty0": True}


async def test_while_writing_a_spec_hangs_what_is_in_it_is_offered(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.declare(node.discovering("tty*"))
    (node.dev / "tty0").touch()
    await node.scan()

    def hang(*_: Any) -> None:
        raise NoAnswer("did not answer in 2 s")

    write = writer.write
    monkeypatch.setattr(writer, "write", hang)
    (node.dev / "tty1").touch()
    for _again in range(2):
        await node.scan()
        assert node.listed() == {"tty0": True}
    # An environment of its own, which the old spec does not give.
    node.declare(node.discovering("tty*", container_edits={"env": ["NEW=1"]}))
    await node.scan()
    assert node.listed() == {}
    monkeypatch.setattr(writer, "write", write)
    await node.scan()
    assert node.listed() == {"tty0": True, "tty1": True}


async def test_a_follower_that_cannot_read_our_specs_offers_nothing_by_cdi(node: Node) -> None:
    declared = {"id": "d", "nodes": [{"path": "/dev/null"}]}
    Path(node.cdi).touch()
    assert writer.offered(node.cdi) == {}
    node.declare(node.discovering("tty*", devices=[declared]))
    node.scanner.writes = False
    await node.scan()
    assert node.listed() == {"d": False}


async def test_where_there_is_no_room_only_the_new_device_waits_for_its_spec(
    node: Node, monkeypatch: pytest.MonkeyPatch, without_pauses: None
) -> None:
    """A full /run."""
    node.declare(node.discovering("tty*"))
    (node.dev / "tty0").touch()
    await node.scan()
    (node.dev / "tty1").touch()
    with monkeypatch.context() as full:
        full.setattr("node_device_plugin.cdi.writer.replace", no_room)
        await node.scan()
        assert node.listed() == {"tty0": True}
        (node.dev / "tty0").unlink()
        await node.scan()
        (node.dev / "tty0").touch()
        await node.scan()
        assert node.listed() == {"tty0": True}
        # A spec that says something else is none.
        node.declare(node.discovering("tty*", container_edits={"env": ["A=b"]}))
        await node.scan()
        assert node.listed() == {}
    await node.scan()
    assert node.listed() == {"tty0": True, "tty1": True}


def no_room(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_the_host_path_changes_under_a_stable_id(node: Node) -> None:
    """Complaint 7 (Akri#734): a device path changes under a stable id."""
    node.declare(node.discovering("by-id/*"))
    (node.dev / "by-id").mkdir()
    for name in ("tty0", "tty7"):
        (node.dev / name).touch()
        (node.dev / "by-id" / "x").unlink(missing_ok=True)
        (node.dev / "by-id" / "x").symlink_to("../" + name)
        await node.scan()
        await node.nobody_holds()
        (device,) = json.loads((Path(node.cdi) / FILE).read_text())["devices"]
        (given,) = device["containerEdits"]["deviceNodes"]
        assert given["hostPath"] == str(node.dev / name)
        assert given["path"] == str(node.dev / "by-id" / "x")
    assert len(node.listed()) == 1


async def test_what_another_resource_has_is_left_out_and_said_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    (node.dev / "tty0").touch()
    node.declare(node.discovering("tty*"), {**node.discovering("*"), "name": "example.com/all"})
    await node.scan()
    await node.scan()
    assert node.listed("example.com/all") == {}
    assert caplog.text.count("left out") == 1


async def test_an_incomplete_device_is_told_only_if_it_stays_so(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes of a device that was just plugged in come one after the other."""
    (node.dev / "tty0").symlink_to("soon")
    node.declare(node.discovering("tty*"))
    await node.scan()
    assert "left out" not in caplog.text
    monkeypatch.setattr("node_device_plugin.devices.scanner._SETTLES", 0.0)
    for _ in range(3):
        await node.scan()
    assert caplog.text.count("left out") == 1
    assert "tty0 is a link to" in caplog.text


async def test_orphans_go_unless_somebody_holds_them(node: Node) -> None:
    node.declare(node.discovering("tty*"))
    (node.dev / "tty0").touch()
    await node.scan()
    resources = [table.resource for table in node.tables.values()]
    assert not await node.scanner.our_specs.has_orphans(resources, node.cdi)
    assert await node.scanner.our_specs.has_orphans([], node.cdi)
    await node.scanner.prune([], [device.id for device in devices_of(node)])
    assert os.listdir(node.cdi) == [FILE]
    await node.scanner.prune(resources, [])
    assert os.listdir(node.cdi) == [FILE]
    await node.scanner.prune([], [])
    assert os.listdir(node.cdi) == []


async def test_a_device_that_is_gone_stays_with_its_resource(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """The kubelet tells devices apart by id alone, and goes on calling the old one its own."""
    by_id = {"name": "example.com/one", "discover": {"paths": ["%s/tty*" % node.dev]}}
    node.declare(by_id, {"name": "example.com/two", "discover": {"paths": ["%s/[t]ty*" % node.dev]}})
    (node.dev / "tty0").touch()
    await node.scan()
    assert node.listed("example.com/one") == {"tty0": True}
    # Only the second resource would find it from now on.
    first = node.tables["example.com/one"]
    declared = first.declared
    first.declared = declared._replace(discover=declared.discover._replace(paths=("/nowhere/*",)))
    await node.scan()
    assert node.listed("example.com/one") == {"tty0": False}
    assert node.listed("example.com/two") == {}
    assert "example.com/one already has a device with this id" in caplog.text
    first.declared = declared
    await node.scan()
    assert node.listed("example.com/one") == {"tty0": True}


async def test_thousands_of_devices_are_not_thousands_of_lines(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "node_device_plugin.devices.scanner")
    devices = [
        {"id": "d%d" % number, "nodes": [{"path": "/dev/d%d" % number, "host_path": str(node.dev / ("d%d" % number))}]}
        for number in range(30)
    ]
    for number in range(14):
        (node.dev / ("d%d" % number)).touch()
    node.declare({"name": "example.com/dev", "devices": devices})
    await node.scan()
    said = caplog.messages
    ten = '["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"]'
    assert said[0] == f"devices are healthy resource=example.com/dev count=14 devices={ten}"
    reason = f"{node.dev}/d%d: No such file or directory"
    assert said[1:11] == [
        f'a device is unhealthy resource=example.com/dev device=d{number} reason="{reason % number}"'
        for number in range(14, 24)
    ]
    more = "more devices are unhealthy; node-device-plugin status lists each reason resource=example.com/dev count=6"
    assert said[11:] == [more]
    (node.dev / "d20").touch()
    await node.scan()
    assert caplog.messages[12:] == ["a device is healthy resource=example.com/dev device=d20"]


def devices_of(node: Node) -> list[Device]:
    return list(node.tables["example.com/dev"].resource.devices)


async def test_hot_plug_without_polling(node: Node) -> None:
    """In directories that appear only then, behind links, and for declared devices, too."""
    declared = {"id": "fixed", "nodes": [{"path": "/dev/fixed", "host_path": str(node.dev / "fixed")}]}
    node.declare(node.discovering("serial/by-id/*", devices=[declared]))
    await node.scan()
    assert node.listed() == {"fixed": False}

    async def until(wanted: dict[str, bool]) -> None:
        while node.listed() != wanted:
            assert await asyncio.wait_for(node.watch.changed(), 10), "the sweep saw it, not the watch"
            await node.scan()

    (node.dev / "tty0").touch()
    (node.dev / "serial" / "by-id").mkdir(parents=True)
    (node.dev / "serial" / "by-id" / "x").symlink_to("../../tty0")
    await until({"fixed": False, "serial-by-id-x": True})
    (node.dev / "fixed").touch()
    await until({"fixed": True, "serial-by-id-x": True})
    (node.dev / "tty0").unlink()
    await until({"fixed": True, "serial-by-id-x": False})
    (node.dev / "tty0").touch()
    await until({"fixed": True, "serial-by-id-x": True})


async def test_specs_that_come_later_or_are_written_in_place_are_news(node: Node, short_path: Path) -> None:
    """As a copied spec is: its file appears empty, and its text comes after that."""
    specs = short_path / "etc" / "cdi"
    node.runtime_reads(specs)
    node.declare({"name": "example.com/dev", "devices": [{"id": "d"}], "container_edits": {"env": ["A=b"]}})
    table = node.tables["example.com/dev"]
    # Directory by directory, then the file, its text, and another text in its place.
    steps: list[Callable[[], object]] = [
        specs.parent.mkdir,
        specs.mkdir,
        (specs / "x.json").touch,
        lambda: (specs / "x.json").write_text(SPEC),
        lambda: (specs / "x.json").write_text(SPEC.replace('"d"', '"e"')),
    ]
    healthy = []
    for step in steps:
        await node.scan()
        # What the look itself has brought about.
        while await node.watch.changed(0.0):
            pass
        step()
        assert await node.watch.changed(10.0), step
        await node.scan()
        healthy.append([reason is None for _, reason in table.shown()])
    assert healthy == [[False], [False], [False], [True], [False]]


async def test_where_a_link_leads_is_watched_from_the_first_look_on(node: Node) -> None:
    """What a look finds may lie in a directory that nobody watched before it."""
    for name in ("far", "by-id"):
        (node.dev / name).mkdir()
    (node.dev / "far" / "tty0").touch()
    (node.dev / "by-id" / "x").symlink_to("../far/tty0")
    node.declare(node.discovering("by-id/*"))
    await node.scan()
    assert node.listed() == {"by-id-x": True}
    (node.dev / "far" / "tty0").unlink()
    assert await asyncio.wait_for(node.watch.changed(), 10)


async def test_a_declared_link_that_leads_elsewhere_is_news_and_its_spec_follows(node: Node) -> None:
    link = node.dev / "gps"
    node.declare(
        {"name": "example.com/dev", "devices": [{"id": "d", "nodes": [{"path": "/dev/gps", "host_path": str(link)}]}]}
    )
    for name in ("tty0", "tty7"):
        (node.dev / name).touch()
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        await node.scan()
        (device,) = json.loads((Path(node.cdi) / FILE).read_text())["devices"]
        assert device["containerEdits"]["deviceNodes"][0]["hostPath"] == str(node.dev / name)
        assert node.listed() == {"d": True}
        while await node.watch.changed(0.0):
            pass
        link.unlink()
        assert await node.watch.changed(10.0)


async def test_a_spec_that_changes_between_discovery_and_the_health_checks_is_news(node: Node) -> None:
    """The health checks have read the change, and discovery has not."""
    specs = node.dev.parent / "cdi"
    specs.mkdir()
    node.runtime_reads(specs)
    node.declare({"name": "example.com/gpu", "discover": {"cdi": {"kind": "vendor.com/gpu"}}})
    await node.scan()
    spec = {"cdiVersion": "0.5.0", "kind": "vendor.com/gpu"}
    devices = [{"name": "gpu0", "containerEdits": {"env": ["A=B"]}}]
    (specs / "vendor.json").write_text(json.dumps({**spec, "devices": devices}))
    await node.scanner._health.check([], node.scanner.configuration.checked_spec_dirs)
    assert await node.watch.changed(5)
    assert await node.scanner.is_news()


async def test_the_spec_that_a_look_wrote_itself_calls_for_no_other_look(node: Node) -> None:
    """10,000 devices are half a second's work: a hot-plug costs one look, not two."""
    specs = node.dev.parent / "cdi"
    specs.mkdir()
    node.runtime_reads(specs)
    node.declare(node.discovering("tty*"))

    async def is_news() -> bool:
        assert await node.watch.changed(5)
        return await node.scanner.is_news()

    await node.scan()
    (node.dev / "tty1").touch()
    assert await is_news()
    await node.scan()
    (spec,) = specs.iterdir()
    assert not await is_news()
    # Anybody else's hand is news: in our own spec, beside it, and beside the devices at the same time.
    spec.write_text("{}")
    assert await is_news()
    await node.scan()
    assert not await is_news()
    (specs / "foreign.json").write_text("{}")
    assert await is_news()
    await node.scan()
    spec.unlink()
    assert await is_news()
    await node.scan()
    (node.dev / "tty2").touch()
    assert await is_news()
    node.watch.wake()
    assert await is_news()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the CDI specs that were parsed."""
    found: list[str] = []
    check = directories.check_content

    def checked(path: str, *arguments: Any) -> Any:
        found.append(os.path.basename(path))
        return check(path, *arguments)

    monkeypatch.setattr(directories, "check_content", checked)
    return found


def foreign(node: Node, *kinds: str) -> None:
    """Other programs' specs of these kinds, each with a device 0 of another node."""
    specs = node.dev.parent / "cdi"
    specs.mkdir(exist_ok=True)
    node.runtime_reads(specs)
    for number, (kind, path) in enumerate(zip(kinds, ("/dev/null", "/dev/zero", "/dev/full"))):
        (specs / f"{number}.yaml").write_text(
            f"cdiVersion: 0.6.0\nkind: {kind}\ndevices:\n"
            f"- {{name: '0', containerEdits: {{deviceNodes: [{{path: {path}}}]}}}}\n"
        )


async def test_where_no_device_uses_cdi_no_spec_is_opened(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign(node, "vendor.com/gpu")
    (node.dev / "tty0").touch()
    node.declare(node.discovering("tty*", injection="device_nodes"))
    opened: list[str] = []
    monkeypatch.setattr(directories, "open", lambda path, *_: opened.append(path), raising=False)
    for _again in range(2):
        await node.scan()
    assert node.listed() == {"tty0": True}
    # Nor does a change of a spec call for a scan.
    while await node.watch.changed(0.0):
        pass
    (node.dev.parent / "cdi" / "new.json").write_text("{}")
    assert await node.watch.changed(10.0)
    assert not await node.scanner.is_news()
    assert opened == []


async def test_a_plugin_parses_its_own_specs_and_those_that_a_device_needs_and_each_once(
    node: Node, parsed: list[str]
) -> None:
    foreign(node, "vendor.com/gpu", "vendor.com/set", "other.com/gpu")
    (node.dev / "tty0").touch()
    ours = node.discovering("tty*")
    node.declare(ours)
    await node.scan()
    assert (node.listed(), parsed) == ({"tty0": True}, [FILE])
    # Discovery, the scanner and the health checks need the same files.
    gpus = {"name": "example.com/gpu", "discover": {"cdi": {"kind": "vendor.com/gpu"}}}
    named = {"name": "example.com/set", "devices": [{"id": "set", "cdi_devices": ["vendor.com/set=0"]}]}
    node.declare(ours, gpus, named)
    for _again in range(2):
        await node.scan()
    assert (node.listed("example.com/gpu"), node.listed("example.com/set")) == (
        {"vendor.com-gpu-0": True},
        {"set": True},
    )
    assert sorted(parsed) == ["0.yaml", "1.yaml", FILE]


async def test_after_a_reload_the_specs_of_former_devices_are_known_once_more(node: Node) -> None:
    """A device may be the same under a name of another kind, which only the nodes of both names show."""
    foreign(node, "vendor.com/gpu", "vendor.com/set")
    for kind in ("gpu", "set", "set"):
        node.declare({"name": "example.com/dev", "devices": [{"id": kind, "cdi_devices": [f"vendor.com/{kind}=0"]}]})
        await node.scan()
    assert node.scanner._discoverer.specs.nodes("vendor.com/gpu=0") == {"/dev/null"}
    node.declare({"name": "example.com/dev", "devices": [{"id": "own", "nodes": [{"path": "/dev/null"}]}]})
    await node.scan()
    assert node.scanner._discoverer.specs.nodes("vendor.com/set=0") == {"/dev/zero"}
