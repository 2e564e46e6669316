"""What the running plugin lets others see, from outside of its process."""

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import syslog
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubelet_stand_in import PodRejected, StandInKubelet
from node_device_plugin.daemon import systemd
from node_device_plugin.declaration import parse_resources
from node_device_plugin.declaration.configuration_file import load
from node_device_plugin.devices.commands import run_command
from node_device_plugin.devices.given import HELD_BY_ANOTHER_NAME
from node_device_plugin.devices.health import unhealthy_reason
from node_device_plugin.devices.health.cdi_names import CdiNames
from node_device_plugin.devices.reason import Reason, kind_of
from node_device_plugin.status_api import client
from node_device_plugin.support.sockets import status_socket
from node_device_plugin.telemetry import logs
from node_device_plugin.telemetry.exposition import Counter, Gauge, Histogram

from ..daemon.test_main import PATH, Journal, running
from .test_http import free_port, say

CONFIG = """
kubelet_device_plugin_dir: %(here)s/dp
kubelet_root_dir: %(here)s
dynamic_cdi_dir: %(here)s/cdi
http_address: 127.0.0.1:%(port)d
log_format: json
resources:
  - name: example.com/dev
    env: {"DEV_{index}": "{id}"}
    devices: [{id: d0}, {id: d1, nodes: [{path: /dev/none}]}, {id: d2, required: false, nodes: [{path: /x}]}]
  - {name: example.com/none}
"""


def samples(text: str) -> dict[str, float]:
    """Each sample as ``name{label=value,...}``."""
    return {
        "%s{%s}" % (s.name, ",".join("%s=%s" % pair for pair in sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_the_text_is_what_prometheus_reads() -> None:
    counter = Counter("x_total", 'a\\b "c"\nd', ("name",))
    counter.increment('back\\slash "quote"\nline')
    counter.increment("b")
    counter.increment("b")
    histogram = Histogram("h_seconds", "help", ("name",), (0.1, 1.0))
    for amount in (0.1, 0.5, 7.0):
        histogram.observe(amount, "n")
    lines = [*counter.render(), *histogram.render(), *Gauge("g", "help").render({(): 1.5})]
    assert samples("\n".join(lines) + "\n") == {
        'x_total{name=back\\slash "quote"\nline}': 1,
        "x_total{name=b}": 2,
        "h_seconds_bucket{le=0.1,name=n}": 1,
        "h_seconds_bucket{le=1.0,name=n}": 2,
        "h_seconds_bucket{le=+Inf,name=n}": 3,
        "h_seconds_sum{name=n}": 7.6,
        "h_seconds_count{name=n}": 3,
        "g{}": 1.5,
    }


class Plugin:
    def __init__(self, folder: Path, process: "asyncio.subprocess.Process", journal: Journal, port: int) -> None:
        self.folder, self.process, self.journal, self._port = folder, process, journal, port
        self.config = folder / "config.yaml"

    async def get(self, path: str) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET %s HTTP/1.1\r\n\r\n" % path.encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body

    async def own(self, request: str) -> Any:
        socket = str(self.folder / "dp" / "node-device-plugin" / "status.sock")
        return json.loads((await say(socket, b"%s HTTP/1.1\r\n\r\n" % request.encode())).partition(b"\r\n\r\n")[2])


@pytest.fixture
async def plugin(short_path: Path) -> AsyncIterator[Plugin]:
    port = free_port()
    (short_path / "config.yaml").write_text(CONFIG % {"here": short_path, "port": port})
    journal = Journal(short_path / "notify")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "node_device_plugin", "run", "--config", str(short_path / "config.yaml")),
        env={**os.environ, "PYTHONPATH": PATH, "NOTIFY_SOCKET": str(journal.path), "WATCHDOG_USEC": "300000"},
        stderr=asyncio.subprocess.PIPE,
    )
    await journal.until("READY=1")
    yield Plugin(short_path, process, journal, port)
    if process.returncode is None:
        process.kill()
    await process.communicate()
    journal.close()


async def test_alive_at_once_ready_when_registered(plugin: Plugin) -> None:
    assert await plugin.get("/healthz") == (200, "ok\n")
    status, body = await plugin.get("/readyz")
    assert (status, body.splitlines()) == (
        503,
        ["example.com/dev: not registered with the kubelet", "example.com/none: not registered with the kubelet"],
    )
    async with StandInKubelet(str(plugin.folder / "dp")) as kubelet:
        for name in ("example.com/dev", "example.com/none"):
            await kubelet.registered(name)
        assert await plugin.get("/readyz") == (200, "ok\n")
    while (await plugin.get("/readyz"))[0] != 503:
        await asyncio.sleep(0.01)


async def test_metrics(plugin: Plugin) -> None:
    """Complaint 13: no metrics to alert on."""
    async with StandInKubelet(str(plugin.folder / "dp")) as kubelet:
        for name in ("example.com/dev", "example.com/none"):
            await kubelet.registered(name)
        await kubelet.allocate_pod("test", {"main": {"example.com/dev": 1}})
        with pytest.raises(PodRejected):
            await kubelet.allocate_pod("test2", {"main": {"example.com/dev": 1}})
        status, text = await plugin.get("/metrics")
        assert status == 200
        seen = samples(text)
        prefix = "node_device_plugin_"
        assert seen[prefix + "registrations_total{resource=example.com/dev,result=registered}"] == 1
        assert seen[prefix + "allocations_total{resource=example.com/dev,result=ok}"] == 1
        assert seen[prefix + "allocation_duration_seconds_count{resource=example.com/dev}"] == 1
        # A line for each bound, in ascending order: https://prometheus.io/docs/instrumenting/exposition_formats/.
        bounds = [float(bound) for bound in re.findall(r'_bucket\{resource="example.com/dev",le="(.*)"\}', text)]
        assert bounds == sorted(bounds)
        assert (bounds[0] > 0, bounds[-1]) == (True, math.inf)
        assert seen[prefix + "registered{resource=example.com/none}"] == 1
        assert 0 < seen[prefix + "registered_seconds{resource=example.com/dev}"] < 60
        assert {name: value for name, value in seen.items() if name.startswith(prefix + "devices{")} == {
            prefix + "devices{reason=,resource=example.com/dev,state=healthy}": 1,
            prefix + "devices{reason=No such file or directory,resource=example.com/dev,state=unhealthy}": 1,
            prefix + "devices{reason=No such file or directory,resource=example.com/dev,state=absent}": 1,
            prefix + "devices{reason=,resource=example.com/none,state=healthy}": 0,
        }
        assert seen[prefix + "configuration_refused{}"] == 0
        assert [name for name in seen if name.startswith(prefix + "build_info{python=3.")]
        assert [name for name in seen if name.startswith(prefix + "configuration_info{sha256=")]


async def test_the_own_socket_tells_the_state_and_reloads(plugin: Plugin) -> None:
    before = await plugin.own("GET /status")
    assert [resource["name"] for resource in before["resources"]] == ["example.com/dev", "example.com/none"]
    assert [(d["id"], d["state"], d["reason"]) for d in before["resources"][0]["devices"]] == [
        ("d0", "healthy", None),
        ("d1", "unhealthy", "/dev/none: No such file or directory"),
        ("d2", "absent", "/x: No such file or directory"),
    ]
    assert await plugin.own("POST /reload") == {"result": "unchanged", "problems": []}
    good = plugin.config.read_text()
    plugin.config.write_text("resources: [{name: x}]")
    refused = await plugin.own("POST /reload")
    assert refused["result"] == "refused"
    assert refused["problems"][0].startswith("resources[0] (x).name: ")
    state = await plugin.own("GET /status")
    assert state["configuration"]["problems"] == refused["problems"]
    assert state["configuration"]["sha256"] == before["configuration"]["sha256"]
    assert "node_device_plugin_configuration_refused 1" in (await plugin.get("/metrics"))[1].splitlines()
    plugin.config.write_text(good + "  - {name: example.com/more}\n")
    reloaded = await plugin.own("POST /reload")
    # The plugin follows its file by itself, and may have been first.
    assert reloaded["result"] in ("applied", "unchanged")
    assert reloaded["problems"] == []
    state = await plugin.own("GET /status")
    assert [resource["name"] for resource in state["resources"]][2:] == ["example.com/more"]
    assert (
        samples((await plugin.get("/metrics"))[1])["node_device_plugin_configuration_reloads_total{result=applied}"]
        == 1
    )


async def test_the_public_address_neither_tells_the_state_nor_reloads(plugin: Plugin) -> None:
    assert (await plugin.get("/status"))[0] == 404
    assert (await plugin.get("/reload"))[0] == 404


async def test_pings_while_it_lives_and_none_while_it_hangs(plugin: Plugin) -> None:
    await plugin.journal.until("WATCHDOG=1")
    plugin.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(0.2)
    with contextlib.suppress(BlockingIOError):
        while plugin.journal._socket.recv(4096):
            pass
    plugin.journal.heard.clear()
    await asyncio.sleep(0.3)
    with pytest.raises(BlockingIOError):
        plugin.journal._socket.recv(4096)
    plugin.process.send_signal(signal.SIGCONT)
    await plugin.journal.until("WATCHDOG=1")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid() + 1)}, None),
        ({"WATCHDOG_USEC": "nonsense"}, None),
    ],
)
def test_whether_systemd_wants_pings(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: "float | None"
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert systemd.watchdog_interval() == expected


def test_that_nobody_listens_holds_nobody_up(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("/none/notify", "@node-device-plugin-none", "vsock:2:1", "/" + "x" * 200):
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        assert systemd.notify("READY=1")
    journal = Journal(short_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(journal.path))
    assert systemd.notify("STATUS=" + "x" * 10_000_000)
    journal.close()


def test_a_systemd_that_does_not_read_holds_nobody_up(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(short_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(journal.path))
    assert systemd.notify("READY=1")
    while systemd.notify("WATCHDOG=1"):
        pass
    journal.close()


async def test_logs_for_programs(plugin: Plugin) -> None:
    plugin.process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.wait_for(plugin.process.communicate(), 20)
    records = [json.loads(line) for line in errors.decode().splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(record) for record in records)
    unhealthy = [record for record in records if record["message"] == "a device is unhealthy"]
    assert {record["resource"] for record in unhealthy} == {"example.com/dev"}
    assert ("node_device_plugin.daemon.main", "info", "stopped") in [
        (r["logger"], r["level"], r["message"]) for r in records
    ]


@pytest.fixture
def root_logger() -> Iterator[None]:
    """As it was, after a test that configures it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("root_logger")
def test_the_journal_has_each_line_by_the_priority_of_its_level(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    logs.configure("debug", "text")
    priorities = {
        logging.DEBUG: syslog.LOG_DEBUG,
        logging.INFO: syslog.LOG_INFO,
        logging.WARNING: syslog.LOG_WARNING,
        logging.ERROR: syslog.LOG_ERR,
        logging.CRITICAL: syslog.LOG_CRIT,
    }
    for level in priorities:
        logging.getLogger("x").log(level, "one\ntwo")
    assert capsys.readouterr().err.splitlines() == [
        "<%d>%s" % (priority, line) for priority in priorities.values() for line in ("one", "two")
    ]


@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize("journal", [True, False])
def test_a_traceback_is_part_of_its_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], journal: bool
) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    if journal:
        monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    logs.configure("info", "json")
    try:
        raise ValueError("here")
    except ValueError:
        logging.getLogger("x").exception("it failed for %s", "d0")
    line = capsys.readouterr().err.rstrip("\n")
    assert line.startswith("<3>{") == journal
    record = json.loads(line[3:] if journal else line)
    assert (record["level"], record["message"]) == ("error", "it failed for d0")
    assert record["exception"].endswith("ValueError: here")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("gpu0", "gpu0"),
        ("/dev/null", "/dev/null"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('"', '"\\""'),
        ("Ger\u00e4t", "Ger\u00e4t"),
        ("forged\nlevel=error", '"forged\\nlevel=error"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("\u2028", '"\\u2028"'),
        ("%s", "%s"),
        (2, "2"),
        (["a", "b c"], '["a", "b c"]'),
        (OSError(2, "gone"), '"[Errno 2] gone"'),
    ],
)
def test_a_value_has_one_line_and_one_reading(value: object, written: str, caplog: pytest.LogCaptureFixture) -> None:
    logs.Log("x").warning("100 %", value=value)
    assert caplog.messages == [f"100 % value={written}"]


@pytest.mark.usefixtures("root_logger")
def test_values_are_keys_of_their_record(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    logs.configure("info", "json")
    logs.Log("x").error("it failed", resource="example.com/dev", devices=["d0", "d1"], count=2)
    record = json.loads(capsys.readouterr().err)
    assert record.pop("time")
    assert record == {
        "level": "error",
        "logger": "x",
        "message": "it failed",
        "resource": "example.com/dev",
        "devices": ["d0", "d1"],
        "count": 2,
    }


async def command(plugin: Plugin, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command beside the running plugin."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "node_device_plugin", *arguments, "--config", str(plugin.config)],
        env={**os.environ, "PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=45,
        check=False,
    )
    return done.returncode, done.stdout.decode()


async def test_the_command_reload_empty_withdraws_every_resource_until_the_next_reload(plugin: Plugin) -> None:
    names = [each["name"] for each in (await plugin.own("GET /status"))["resources"]]
    assert names
    assert await command(plugin, "reload", "--empty") == (0, "every resource: withdrawn\n")
    assert (await plugin.own("GET /status"))["resources"] == []
    assert (await command(plugin, "reload"))[0] == 0
    assert [each["name"] for each in (await plugin.own("GET /status"))["resources"]] == names


async def test_the_command_reload_forget_lost_ends_the_expectation_of_what_is_gone(plugin: Plugin) -> None:
    assert [each["missed"] for each in (await plugin.own("GET /status"))["resources"]] == [{}, {}]
    assert await command(plugin, "reload", "--forget-lost") == (0, "lost devices: no longer expected\n")


async def test_the_command_reload_waits_for_its_end_and_fails_where_the_file_is_refused(plugin: Plugin) -> None:
    assert await command(plugin, "reload", "--check") == (0, "")
    plugin.config.write_text(plugin.config.read_text() + "  - {name: example.com/more}\n")
    assert (await command(plugin, "reload"))[0] == 0
    assert (await plugin.own("GET /status"))["resources"][2]["name"] == "example.com/more"
    assert await command(plugin, "reload", "--check") == (0, "")
    plugin.config.write_text("resources: [{name: x}]")
    code, output = await command(plugin, "reload")
    assert code == 1
    assert "resources[0] (x).name" in output
    # The plugin does not serve there.
    plugin.config.write_text("kubelet_device_plugin_dir: /dev/null/nowhere\nresources: []")
    for arguments in (["reload"], ["reload", "--check"]):
        code, output = await command(plugin, *arguments)
        assert (code, len(output.splitlines())) == (1, 1)
        assert "no plugin answers at /dev/null/nowhere/node-device-plugin/status.sock: Not a directory" in output


#: The plugin as in a pod without capabilities, which no command beside it knows of.
_POWERLESS = """
import sys
from node_device_plugin.cli.main import main
from node_device_plugin.daemon import pod_privileges

pod_privileges._is_privileged = lambda status: False
main(["run", "--config", sys.argv[1]])
"""


async def test_what_the_running_plugin_alone_refuses_the_command_says_and_does_not_call_running(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    async with running(short_path, command=("-c", _POWERLESS)) as (process, journal):
        await journal.until("READY=1")
        plugin = Plugin(short_path, process, journal, 0)
        plugin.config.write_text(plugin.config.read_text() + "  - {name: example.com/probed, health: {open: true}}\n")
        sha256 = load(str(plugin.config)).sha256[:12]
        code, output = await command(plugin, "reload")
        assert code == 1
        assert "resources[1] (example.com/probed).health.open: an unprivileged pod cannot open devices" in output
        assert "configuration %s: refused" % sha256 in output
        code, output = await command(plugin, "reload", "--check")
        assert code == 1
        assert output.startswith("node-device-plugin: the plugin runs with configuration ")
        assert output.endswith(" is %s: run node-device-plugin reload\n" % sha256)


async def test_reasons_are_as_few_as_there_are_kinds_of_them(tmp_path: Path) -> None:
    """Each label's value is a series: neither a device's name nor what a thermometer says makes one."""
    file = tmp_path / "a: b"
    file.touch()
    null = {"path": "/dev/null", "minor": 5}
    devices = [{"id": "d0", "nodes": [{"path": "/dev/d", "host_path": str(file)}]}, {"id": "d1", "nodes": [null]}]
    (resource,) = parse_resources([{"name": "example.com/dev", "devices": devices}])
    names = CdiNames(["/none"])
    names.read(["example.com/dev=d0"])
    probe = ["/bin/sh", "-c", "echo '71.2 °C: too hot' >&2; exit 1"]
    held = Reason("held by default/own as example.com/old", HELD_BY_ANOTHER_NAME)
    for reason, kind in (
        (unhealthy_reason(resource.devices[0]), "not a device node"),
        (unhealthy_reason(resource.devices[1]), "expected any any:5, found c 1:3"),
        (names.problem("example.com/dev=d0"), "the CDI name is in no valid spec of /none"),
        (await run_command(probe, {}, 5), "ended with 1"),
        (await run_command(["/bin/sleep", "9"], {}, 0.1), "took longer than 0.1 s"),
        ("gone", "gone"),
        (held, "held by another name"),
    ):
        assert kind_of(reason or "") == kind
        assert kind == "gone" or len(str(reason)) > len(kind)


async def test_a_plugin_that_takes_the_question_and_says_nothing(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setitem(client._TIMEOUT, "GET", 0.05)
    socket = status_socket(str(short_path))
    Path(socket).parent.mkdir()
    async with await asyncio.start_unix_server(say_nothing, socket):
        with pytest.raises(client.NotAnswering, match=r"status\.sock: no answer in 0\.05 s: run "):
            await client.ask(str(short_path), "GET", "/status")


async def test_who_may_not_ask_is_told_who_may(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(path: str) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(asyncio, "open_unix_connection", refuse)
    with pytest.raises(
        client.NotAnswering,
        match=r"status\.sock: Permission denied: only root may open this socket; run the command as root",
    ):
        await client.ask("/dp", "GET", "/status")
