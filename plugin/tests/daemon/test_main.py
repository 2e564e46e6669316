"""The process: ready once it serves, with or without a kubelet, and gone cleanly at SIGTERM."""

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.daemon import main as plugin
from node_device_plugin.daemon.single_instance import Locked, SingleInstance
from node_device_plugin.declaration.configuration_file import Source, load
from node_device_plugin.devices.scanner import DeviceScanner
from node_device_plugin.status_api import client

PATH = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
CONFIG = """
cdi_spec_dirs: []
dynamic_cdi_dir: %(here)s/cdi
kubelet_root_dir: %(here)s
kubelet_device_plugin_dir: %(here)s/dp
resources:
  - name: example.com/dev
    devices: [{id: d0, nodes: [{path: /dev/null}]}, {id: d1, required: false, nodes: [{path: %(here)s/hotplugged}]}]
"""


class Journal:
    """What systemd would hear."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self.heard: list[str] = []

    async def until(self, text: str) -> str:
        """The first message with ``text``, heard already or still to come."""
        loop = asyncio.get_running_loop()
        while not any(text in message for message in self.heard):
            self.heard.append((await asyncio.wait_for(loop.sock_recv(self._socket, 4096), 20)).decode())
        return next(message for message in self.heard if text in message)

    def close(self) -> None:
        self._socket.close()


@contextlib.asynccontextmanager
async def running(
    short_path: Path, more: str = "", command: tuple[str, ...] = ("-m", "node_device_plugin", "run", "--config")
) -> AsyncIterator[tuple["asyncio.subprocess.Process", Journal]]:
    config = short_path / "config.yaml"
    config.write_text(CONFIG % {"here": short_path} + more)
    journal = Journal(short_path / "notify")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command, str(config)),
        env={**os.environ, "PYTHONPATH": PATH, "NOTIFY_SOCKET": str(journal.path)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process, journal
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        journal.close()


async def test_ready_without_a_kubelet_registered_with_one_and_a_clean_end(short_path: Path) -> None:
    async with running(short_path) as (process, journal):
        await journal.until("READY=1")
        assert "0 of 1 resources registered with the kubelet; waiting for example.com/dev" in await journal.until(
            "0 of"
        )
        async with StandInKubelet(str(short_path / "dp")) as kubelet:
            assert await kubelet.registered("example.com/dev") == {"d0": "Healthy"}
            await journal.until("1 of 1 resources registered")
            process.send_signal(signal.SIGTERM)
            await journal.until("STOPPING=1")
            assert await asyncio.wait_for(process.wait(), 10) == 0
            # What containers were given counts until the next boot.
            assert os.listdir(short_path / "dp" / "node-device-plugin") == ["given.json"]


async def test_the_end_does_not_wait_for_a_first_look_that_hangs(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = asyncio.Event()

    async def hang(*_: Any) -> None:
        looks.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(DeviceScanner, "scan", hang)
    config = short_path / "config.yaml"
    config.write_text(CONFIG % {"here": short_path})
    running = asyncio.create_task(plugin.run(Source(str(config)), load(str(config))))
    await asyncio.wait_for(looks.wait(), 10)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 10)


async def test_a_configuration_that_changes_during_the_first_scan_is_read_again(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, scan = short_path / "config.yaml", DeviceScanner.scan
    config.write_text(CONFIG % {"here": short_path})
    later = "log_format: json\n" + config.read_text()

    async def changing(*given: Any) -> Any:
        if config.read_text() != later:
            await asyncio.sleep(0.3)
            config.write_text(later)
        return await scan(*given)

    monkeypatch.setattr(DeviceScanner, "scan", changing)
    running = asyncio.create_task(plugin.run(Source(str(config)), load(str(config))))
    sha256, wanted = "", hashlib.sha256(later.encode()).hexdigest()
    while sha256 != wanted:
        await asyncio.sleep(0.05)
        with contextlib.suppress(client.NotAnswering):
            status = await asyncio.wait_for(client.ask(str(short_path / "dp"), "GET", "/status"), 10)
            sha256 = status["configuration"]["sha256"]
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 10)


async def test_who_hears_that_it_is_ready_can_ask_it(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    start_server = asyncio.start_server
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def slow(*given: Any, **options: Any) -> Any:
        await asyncio.sleep(0.3)
        return await start_server(*given, **options)

    def notify(message: str) -> bool:
        said.append(message)
        return True

    monkeypatch.setattr(asyncio, "start_server", slow)
    monkeypatch.setattr("node_device_plugin.daemon.systemd.notify", notify)
    config = short_path / "config.yaml"
    config.write_text("http_address: 127.0.0.1:%d" % port + CONFIG % {"here": short_path})
    running = asyncio.create_task(plugin.run(Source(str(config)), load(str(config))))
    while "READY=1" not in said:
        assert not running.done(), running
        await asyncio.sleep(0.01)
    _reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 10)


async def test_an_end_before_it_serves_is_no_defect(short_path: Path) -> None:
    (short_path / "plugins_registry").touch()
    async with running(short_path, "registration: plugins_registry\n") as (process, journal):
        await journal.until("STATUS=0 of 1")
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 10)
        assert process.returncode == 0
        refused = 'cannot serve resource=example.com/dev directory=%s error="File exists"'
        assert refused % (short_path / "plugins_registry") in errors.decode()
        assert "Traceback" not in errors.decode()


async def test_systemd_hears_of_many_resources_in_a_message_that_it_takes(short_path: Path) -> None:
    more = "".join("  - {name: %s.example.com/r%d}\n" % ("x" * 50, number) for number in range(100))
    async with running(short_path, more) as (_process, journal):
        status = await journal.until("STATUS=0 of 101 resources registered")
        assert status.endswith("/r8 and 91 more")
        assert len(status) < 4096


async def test_sigkill_and_a_new_instance(short_path: Path) -> None:
    async with StandInKubelet(str(short_path / "dp")) as kubelet:
        async with running(short_path) as (process, _journal):
            await kubelet.registered("example.com/dev")
            process.kill()
            await kubelet.disconnected("example.com/dev")
        (short_path / "notify").unlink()
        assert len(list((short_path / "dp" / "node-device-plugin").glob("dev-*.sock"))) == 1
        async with running(short_path) as (_process, _journal):
            await kubelet.registered("example.com/dev")
            assert len(list((short_path / "dp" / "node-device-plugin").glob("dev-*.sock"))) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")
async def test_a_device_that_comes_is_listed_and_stays_listed_when_it_goes(short_path: Path) -> None:
    async with StandInKubelet(str(short_path / "dp")) as kubelet, running(short_path):
        assert await kubelet.registered("example.com/dev") == {"d0": "Healthy"}
        os.mknod(short_path / "hotplugged", 0o20600, os.makedev(1, 3))
        await kubelet.until(lambda: kubelet.devices("example.com/dev") == {"d0": "Healthy", "d1": "Healthy"}, 20)
        (short_path / "hotplugged").unlink()
        await kubelet.until(lambda: kubelet.devices("example.com/dev") == {"d0": "Healthy", "d1": "Unhealthy"}, 20)


@pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")
async def test_discovered_devices_with_real_nodes_hot_plug_and_cdi(short_path: Path) -> None:
    more = """
  - name: example.com/found
    discover: {paths: [%(here)s/serial/by-id/*, %(here)s/tty*]}
    env: {"PORT_{index}": "{path}"}
""" % {"here": short_path}
    prefix = str(short_path)[1:].replace("/", "-")
    by_id, plain = prefix + "-serial-by-id-x", prefix + "-tty1"
    spec = short_path / "cdi" / "node-device-plugin_example.com_found.json"
    os.mknod(short_path / "tty0", 0o20600, os.makedev(1, 3))
    (short_path / "serial" / "by-id").mkdir(parents=True)
    (short_path / "serial" / "by-id" / "x").symlink_to("../../tty0")
    async with StandInKubelet(str(short_path / "dp")) as kubelet, running(short_path, more):
        assert await kubelet.registered("example.com/found") == {by_id: "Healthy"}
        assert [device["name"] for device in json.loads(spec.read_text())["devices"]] == [by_id]
        os.mknod(short_path / "tty1", 0o20600, os.makedev(1, 5))
        both = {by_id: "Healthy", plain: "Healthy"}
        await kubelet.until(lambda: kubelet.devices("example.com/found") == both, 20)
        assert [device["name"] for device in json.loads(spec.read_text())["devices"]] == [by_id, plain]
        (short_path / "tty0").unlink()
        await kubelet.until(lambda: kubelet.devices("example.com/found")[by_id] == "Unhealthy", 20)
    assert spec.exists()


async def test_with_nothing_left_to_serve_its_cdi_specs_are_gone_once_it_says_so(short_path: Path) -> None:
    """An uninstall that reaches nothing of the node but its pod waits for that before it takes the pod away."""
    directory, cdi = short_path / "dp", short_path / "cdi"
    owner = "cdi_owner: plugin\n"
    async with StandInKubelet(str(directory)) as kubelet, running(short_path, owner) as (_process, journal):
        await kubelet.registered("example.com/dev")
        await journal.until("READY=1")
        assert [path.name for path in cdi.iterdir()] == ["node-device-plugin_example.com_dev.json"]
        config = short_path / "config.yaml"
        places = (CONFIG % {"here": short_path}).partition("resources:")[0]
        config.write_text(places + "resources: []\n" + owner)
        sha256, said = load(str(config)).sha256, ""
        for _look in range(100):
            said = (await client.ask(str(directory), "GET", "/status"))["configuration"]["sha256"]
            if said == sha256:
                break
            await asyncio.sleep(0.1)
        assert said == sha256
        assert list(cdi.iterdir()) == []


async def test_sighup_reads_the_configuration_again(short_path: Path) -> None:
    async with StandInKubelet(str(short_path / "dp")) as kubelet, running(short_path) as (process, journal):
        await kubelet.registered("example.com/dev")
        await journal.until("READY=1")
        config = short_path / "config.yaml"
        config.write_text(config.read_text() + "  - {name: example.com/more, devices: [{id: m0}], env: {MORE: x}}\n")
        process.send_signal(signal.SIGHUP)
        assert await kubelet.registered("example.com/more") == {"m0": "Healthy"}


async def test_a_configuration_that_changes_is_read_again_and_a_bad_one_refused(short_path: Path) -> None:
    async with StandInKubelet(str(short_path / "dp")) as kubelet, running(short_path) as (_process, journal):
        await kubelet.registered("example.com/dev")
        await journal.until("READY=1")
        connection = kubelet.manager.endpoints["example.com/dev"]
        config, new, directory = short_path / "config.yaml", short_path / "new", str(short_path / "dp")
        new.write_text(config.read_text() + "  - {name: x}\n")
        loaded = (await client.ask(directory, "GET", "/status"))["configuration"]["sha256"]
        os.replace(new, config)
        said = {"last_reload": ""}
        while said["last_reload"] != "refused":
            said = (await client.ask(directory, "GET", "/status"))["configuration"]
        assert said["sha256"] == loaded
        config.write_text(
            config.read_text().replace("name: x", "name: example.com/more, devices: [{id: m0}], env: {MORE: x}")
        )
        assert await kubelet.registered("example.com/more") == {"m0": "Healthy"}
        assert kubelet.manager.endpoints["example.com/dev"] is connection
        assert connection.stopped_at is None


async def test_what_is_asked_for_while_another_instance_runs_is_done_when_it_has_ended(short_path: Path) -> None:
    lock = SingleInstance()
    assert lock.take(str(short_path / "dp"))
    async with StandInKubelet(str(short_path / "dp")) as kubelet, running(short_path) as (process, journal):
        await journal.until("another instance of the plugin serves in")
        config = short_path / "config.yaml"
        config.write_text(config.read_text() + "  - {name: example.com/more, devices: [{id: m0}], env: {MORE: x}}\n")
        process.send_signal(signal.SIGHUP)
        lock.release()
        assert await kubelet.registered("example.com/more") == {"m0": "Healthy"}
        assert await kubelet.registered("example.com/dev") == {"d0": "Healthy"}


async def test_another_directory_is_served_where_nobody_else_does(short_path: Path) -> None:
    first, second = short_path / "dp", short_path / "other"
    async with contextlib.AsyncExitStack() as stack:
        old = await stack.enter_async_context(StandInKubelet(str(first)))
        new = await stack.enter_async_context(StandInKubelet(str(second), root=str(short_path / "r")))
        _process, journal = await stack.enter_async_context(running(short_path))
        await old.registered("example.com/dev")
        await journal.until("READY=1")
        lock = SingleInstance()
        assert lock.take(str(second))
        config = short_path / "config.yaml"
        config.write_text(config.read_text().replace(str(first), str(second)))
        problem = "kubelet_device_plugin_dir: another instance of the plugin serves in %s/node-device-plugin" % second
        problem += ": process %d" % os.getpid()
        problems: list[str] = []
        for _ in range(1000):
            problems = problems or (await client.ask(str(first), "GET", "/status"))["configuration"]["problems"]
            await asyncio.sleep(0 if problems else 0.01)
        assert problems == [problem]
        assert old.devices("example.com/dev") == {"d0": "Healthy"}
        lock.release()
        # The bytes that were refused: nothing runs with them, so they are no old news.
        config.write_text(config.read_text())
        assert await new.registered("example.com/dev") == {"d0": "Healthy"}
        await old.disconnected("example.com/dev")
        # Both go with it: the socket for its own commands, and the lock.
        await new.until((second / "node-device-plugin" / "status.sock").exists)
        assert (await client.ask(str(second), "GET", "/status"))["resources"][0]["name"] == "example.com/dev"
        assert os.listdir(first / "node-device-plugin") == []

        def is_free() -> bool:
            with contextlib.suppress(Locked):
                return lock.take(str(first))
            return False

        # The plugin lets go of the first directory after it has answered in the second one.
        await new.until(is_free)
        with pytest.raises(Locked, match="another instance of the plugin serves"):
            lock.take(str(second))
        lock.release()


#: The command, with a concern of the process that fails at once.
_WITH_A_DEFECT = """
import sys
from node_device_plugin.cli.main import main
from node_device_plugin.daemon import main as daemon

async def fail(path, on_change):
    raise ValueError("a defect")

daemon.follow = fail
main(["run", "--config", sys.argv[1]])
"""


async def test_a_defect_before_it_serves_is_no_readiness(short_path: Path) -> None:
    async with running(short_path, command=("-c", _WITH_A_DEFECT)) as (process, journal):
        await journal.until("STOPPING=1")
        assert not any("READY=1" in message for message in journal.heard)
        _, errors = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 1
        assert b"ValueError: a defect" in errors


async def test_a_bad_configuration_is_said_and_not_run(short_path: Path) -> None:
    (short_path / "config.yaml").write_text("resources: [{name: x}]")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "node_device_plugin", "run", "--config", str(short_path / "config.yaml")),
        env={**os.environ, "PYTHONPATH": PATH},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert b"resources[0] (x).name" in errors
    assert b"Traceback" not in errors
