"""The command: output, errors and exit codes as a user meets them."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from node_device_plugin.cli.main import main
from node_device_plugin.kubelet.queries import Holders
from node_device_plugin.verification.report import Report

PLUGIN = Path(__file__).parents[2]

CONFIG = """
resources:
  - name: example.com/dev
    devices: [{id: d0, nodes: [{path: /dev/null}]}]
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


def test_validate(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--config", config]) == 0
    assert capsys.readouterr().out == "%s: valid: 1 resource, 1 device\n" % config


def test_validate_counts_as_people_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("resources: [{name: example.com/dev, devices: [/dev/a, /dev/b]}, {name: example.com/none}]")
    assert main(["validate", "--config", str(path)]) == 0
    assert capsys.readouterr().out == "%s: valid: 2 resources, 2 devices\n" % path


def test_validate_says_everything_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("resources: [{name: x}, {nmae: y}]")
    assert main(["validate", "--config", str(path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("node-device-plugin: resources[") for line in lines)


def test_cdi_render(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cdi", "render", "--config", config, "-o", "json"]) == 0
    specs = json.loads(capsys.readouterr().out)
    assert specs["node-device-plugin_example.com_dev.json"]["kind"] == "example.com/dev"
    assert main(["cdi", "render", "--config", config]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# node-device-plugin_example.com_dev.json\n{\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("node-device-plugin ")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["run", "--nonsense"], ["verify", "--devices", "two"]])
def test_usage_is_exit_code_2(arguments: "list[str]", capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: node-device-plugin")


@pytest.mark.parametrize("seconds", ["-3", "nan", "inf", "soon"])
def test_a_time_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verify", "--timeout=%s" % seconds])
    assert caught.value.code == 2
    assert "--timeout: must be a number of seconds, 0 or more, not %r" % seconds in capsys.readouterr().err


@pytest.mark.parametrize("problems", [[], ["the kubelet has no such resource"]])
def test_verify_fails_where_it_found_a_problem(
    config: str, problems: "list[str]", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def verified(*_: object) -> Report:
        return Report("containerd 2.3.1", "running", [], problems, {}, {}, None)

    monkeypatch.setattr("node_device_plugin.verification.verify.verify", verified)
    assert main(["verify", "--config", config]) == len(problems)
    assert capsys.readouterr().out.splitlines()[2:] == ["problem: %s" % problem for problem in problems]


@pytest.mark.parametrize(
    ("arguments", "unbuffered"), [("version", ""), ("version", "1"), ("--help", ""), ("cdi render", "")]
)
def test_what_cannot_be_written(config: str, arguments: str, unbuffered: str) -> None:
    given = [*arguments.split(), *(["--config", config] if arguments == "cdi render" else [])]
    # Where dependencies are on the path alone (tests/oldest_python), they stay there.
    path = os.pathsep.join([str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": unbuffered}

    def exits(stdout: IO[bytes]) -> "tuple[int, bytes]":
        command = [sys.executable, "-m", "node_device_plugin", *given]
        ended = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=environment, check=False)
        return ended.returncode, ended.stderr

    with open("/dev/full", "wb") as full:
        assert exits(full) == (1, b"node-device-plugin: the command failed: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as nobody_reads:
        assert exits(nobody_reads) == (1, b"")


def test_a_folder_that_is_a_file(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["holders", "--kubelet-root", config, "--device-plugin-dir", config]) == 1
    expected = "node-device-plugin: %s/kubelet_internal_checkpoint: Not a directory\n" % config
    assert capsys.readouterr().err == expected


def test_a_runtime_that_does_not_answer_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", "--socket", str(tmp_path / "none.sock")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "none.sock" in line


def test_holders_where_there_is_no_kubelet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["holders", "--kubelet-root", str(tmp_path), "--device-plugin-dir", str(tmp_path), "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.pop("unanswered").startswith("%s/pod-resources/kubelet.sock: UNAVAILABLE: " % tmp_path)
    assert said == {"source": "none", "held": [], "allocatable": {}}


def test_holders_reads_the_specs_of_the_directory_that_is_given_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a container was given stands in a spec, wherever the plugin writes it."""
    read: list[Sequence[str]] = []

    async def holders(_root: str, _device_plugins: str, specs: Sequence[str]) -> Any:
        read.append(specs)
        return Holders("kubelet")

    monkeypatch.setattr("node_device_plugin.kubelet.queries.holders", holders)
    assert main(["holders"]) == main(["holders", "--cdi-dir", "/srv/cdi"]) == 0
    assert capsys.readouterr().out == "no device is held\n" * 2
    assert read == [["/etc/cdi", "/var/run/cdi"], ["/etc/cdi", "/var/run/cdi", "/srv/cdi"]]


def test_holders_says_that_nobody_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["holders", "--kubelet-root", str(tmp_path), "--device-plugin-dir", str(tmp_path)]) == 1
    assert "no kubelet answers below %s" % tmp_path in capsys.readouterr().err

    async def holders(*_: str) -> Any:
        return Holders("kubelet")

    monkeypatch.setattr("node_device_plugin.kubelet.queries.holders", holders)
    assert main(["holders"]) == 0
    assert capsys.readouterr().out == "no device is held\n"
