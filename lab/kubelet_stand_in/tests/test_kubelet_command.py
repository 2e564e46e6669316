"""Tests the stand-in's command: options, configuration, /pods, and a complete run with a runtime."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from kubelet_stand_in import kubelet as command
from kubelet_stand_in import kubelet_process as process_of_command
from kubelet_stand_in import transcripts
from kubelet_stand_in.cri_server import CriServer
from kubelet_stand_in.klog import _Formatter
from kubelet_stand_in.pods_http import PodsHttpServer

CONFIGURATION = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %s
containerRuntimeEndpoint: unix://%s
readOnlyPort: %d
cgroupsPerQOS: false
"""


def test_the_version_says_what_it_is(capsys):
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out == "Kubernetes v1.36.2+stand-in\n"


def test_the_version_is_said_without_what_takes_long_to_import():
    """Every preflight check runs --version, which takes 50 ms for the real kubelet."""
    program = "import sys; from kubelet_stand_in import kubelet; kubelet.main(['--version']); print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment)
    assert not {"asyncio", "grpc", "yaml"} & set(said.stdout.split())


def test_it_wants_a_configuration(capsys):
    with pytest.raises(SystemExit):
        command.main([])
    assert "--config is missing" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "kind: Pod\n", "{"])
def test_a_wrong_configuration_is_refused(short_path, text):
    (short_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"config.yaml is no"):
        process_of_command.read_settings(str(short_path / "config.yaml"))


def test_the_configuration_is_a_part_of_the_kubelets(short_path):
    (short_path / "config.yaml").write_text(CONFIGURATION % ("/m", "/run/x.sock", 0))
    assert process_of_command.read_settings(str(short_path / "config.yaml")) == ("/m", "unix:///run/x.sock", 0)


async def test_pods_over_http(kubelet):
    await kubelet.allocate_pod("pod", {"main": {}})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = PodsHttpServer(kubelet, port)
    await server.start()

    def get(path):
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=5) as answer:
            return json.load(answer)

    loop = asyncio.get_running_loop()
    [item] = (await loop.run_in_executor(None, get, "/pods"))["items"]
    assert item["metadata"]["name"] == "pod-node"
    assert item["status"]["phase"] == "Running"
    assert item["status"]["containerStatuses"][0]["state"] == {"running": {}}
    with pytest.raises(urllib.error.HTTPError):
        await loop.run_in_executor(None, get, "/metrics")
    await server.stop()


async def test_a_whole_life(short_path):
    """The command notifies systemd and runs a static pod. SIGTERM ends the command with code 0, but not the pod."""
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notified.bind(str(short_path / "notify"))
    notified.settimeout(20)
    (short_path / "manifests").mkdir()
    (short_path / "manifests" / "pod.json").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "pod"},
                "spec": {"containers": [{"name": "main", "image": "image"}]},
            }
        )
    )
    (short_path / "config.yaml").write_text(
        CONFIGURATION % (short_path / "manifests", short_path / "containerd.sock", 0)
    )
    program = (
        "import sys; from kubelet_stand_in import kubelet, kubelet_process as process, lab_node;"
        "process._DEVICE_PLUGINS = sys.argv[1]; process._LOGS = sys.argv[2]; lab_node.MARKER = '/';"
        "sys.exit(kubelet.main(sys.argv[3:]))"
    )
    folder = str(short_path / "device-plugins")
    arguments = [folder, str(short_path / "logs"), "--config", str(short_path / "config.yaml"), "--v=4"]
    async with CriServer(str(short_path / "containerd.sock")) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            *arguments,
            "--root-dir",
            str(short_path),
            env={**os.environ, "NOTIFY_SOCKET": str(short_path / "notify"), "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            ready = await asyncio.get_running_loop().run_in_executor(None, notified.recv, 100)
        except socket.timeout:
            process.kill()
            pytest.fail("not ready:\n" + (await process.communicate())[1].decode())
        assert ready == b"READY=1"
        assert os.path.exists(os.path.join(folder, "kubelet.sock"))
        assert os.path.exists(str(short_path / "pod-resources" / "kubelet.sock"))
        for _ in range(200):
            if await server.runtime.containers():
                break
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()
        assert process.returncode == 0
        assert '"Container runtime initialized" containerRuntime="containerd"' in log.decode()
        assert len(await server.runtime.containers()) == 1
    notified.close()


def test_a_runtime_that_is_not_there_is_an_error(short_path, monkeypatch, caplog):
    monkeypatch.setattr("kubelet_stand_in.klog.write_to_stderr", lambda verbosity: None)
    monkeypatch.setattr("kubelet_stand_in.lab_node.MARKER", str(short_path))
    (short_path / "config.yaml").write_text(CONFIGURATION % ("/m", short_path / "nobody.sock", 0))
    assert command.main(["--config", str(short_path / "config.yaml")]) == 1
    assert "nobody.sock could not report its version" in caplog.text


def test_log_lines_look_like_the_kubelets(caplog):
    from kubelet_stand_in import klog

    with caplog.at_level(1):
        klog.info(2, "Said so", resourceName="a/b", capacity=3)
        klog.error("Failed", 'no "luck"', path="/x")
    first, second = (_Formatter().format(record) for record in caplog.records)
    assert first.startswith("I")
    assert first.endswith('] "Said so" resourceName="a/b" capacity=3')
    assert "test_kubelet_command.py:" in first
    assert second.startswith("E")
    assert second.endswith('] "Failed" err="no \\"luck\\"" path="/x"')


@pytest.mark.parametrize(
    "run", [lambda: command.main(["--config", "/none"]), lambda: transcripts.main(["check", "--kubelet=/none"])]
)
def test_a_machine_that_is_no_lab_node_is_left_alone(run, short_path, monkeypatch, capsys):
    def touched(*_arguments, **_keywords):
        raise AssertionError("it began")

    monkeypatch.setattr("kubelet_stand_in.lab_node.MARKER", str(short_path / "none"))
    monkeypatch.setattr("kubelet_stand_in.kubelet_process.run", touched)
    monkeypatch.setattr(subprocess, "run", touched)
    assert run() == 1
    assert "is not a throwaway node" in capsys.readouterr().err
