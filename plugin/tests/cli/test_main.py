"""The command: output, errors and exit codes as a user meets them."""

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest
import yaml

from node_device_plugin.cli.main import main, parser
from node_device_plugin.declaration import Configuration
from node_device_plugin.kubelet.cdi_holders import CdiHolders
from node_device_plugin.kubelet.queries import Holders
from node_device_plugin.runtime.errors import CriError
from node_device_plugin.support.channels import grpc
from node_device_plugin.verification.report import Report
from node_device_plugin.verification.scope import Scope

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
    assert main(["validate", "--config", config]) == main(["validate", config]) == 0
    assert capsys.readouterr().out == "%s: valid: 1 resource, 1 device\n" % config * 2
    assert "argument --config: not allowed with argument FILE" in refusal(["validate", config, "--config=x"], capsys)


def test_run_reads_the_default_only_without_a_file_of_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, default = tmp_path / "worker1", tmp_path / "_default"
    default.write_text("log_level: loud")
    command = ["run", "--config", str(own), "--default-config", str(default)]
    assert main(command) == 1
    assert "log_level: must be one of debug, info, warning, error, not 'loud'" in capsys.readouterr().err
    own.write_text("log_format: loud")
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "log_format: must be one of" in said
    assert "log_level" not in said
    # Without both, the error names both files.
    own.unlink()
    default.unlink()
    assert main(command) == 1
    assert f"{own}: is missing, and so is the default {default}: add the key" in capsys.readouterr().err


def on_stdin(text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "node_device_plugin", *arguments]
    # Where dependencies are on the path alone (tests/oldest_python), they stay there.
    path = os.pathsep.join([str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])])
    given, theirs = socket.socketpair()
    with given, theirs:
        # A server of SSH may give a socket, which /dev/stdin cannot open.
        given.sendall(text.encode())
        given.shutdown(socket.SHUT_WR)
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, stdin=theirs, capture_output=True, text=True, env=environment, check=False)


def test_a_configuration_on_stdin(capsys: pytest.CaptureFixture[str]) -> None:
    assert on_stdin(CONFIG, "validate", "-").stdout == "stdin: valid: 1 resource, 1 device\n"
    wrong = on_stdin("resources: [", "discover", "--config", "-")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("node-device-plugin: stdin: is not valid YAML: ")
    # The plugin reads its file again later, and these commands ask that plugin.
    for command in ("run", "reload", "status", "doctor"):
        assert "--config: must be a file: this command does not read stdin" in refusal([command, "--config=-"], capsys)


def test_validate_counts_as_people_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("resources: [{name: example.com/dev, devices: [/dev/a, /dev/b]}, {name: example.com/none}]")
    assert main(["validate", "--config", str(path)]) == 0
    assert capsys.readouterr().out == "%s: valid: 2 resources, 2 devices\n" % path


VARIABLES = """
node_devices_resources_workers:
  - name: example.com/dev
    devices: [{id: d0, nodes: [{path: /dev/null}]}]
node_devices_resources_licences: [{name: example.com/licence, capacity: 4}]
node_devices_settings: {log_level: debug}
device_plugin_mode: service
"""


def test_the_variables_of_an_inventory_are_checked_as_the_roles_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "workers.yml"
    path.write_text(VARIABLES)
    assert main(["validate", str(path)]) == 0
    assert capsys.readouterr().out == "%s: valid: 2 resources, 1 device\n" % path
    path.write_text("node_devices_resources: [{name: a.bb/cc, discover: {paths: [/dev/x*]}}]")
    assert main(["validate", str(path)]) == 0
    assert "1 resource, 0 devices, and those that the plugin discovers" in capsys.readouterr().out
    path.write_text("""
node_devices_resources:
  - {name: example.com/dev, devices: [{id: d0, nodes: [{path: null.}]}]}
  - {name: example.com/cpu, capacity: "{{ ansible_facts.processor_vcpus }}"}
  - {name: example.com/dev, capacity: x}
node_devices_resources_all: "{{ some }}"
node_devices_resources_more: [{name: example.com/some, env: {A: "a{# comment #}"}}]
node_devices_settings: {log_level: "{% if a %}info{% endif %}"}
""")
    assert main(["validate", str(path)]) == 1
    expression = "is an expression, which only Ansible evaluates: check the inventory with playbooks/validate.yml"
    assert sorted(line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()) == [
        "node_devices_resources[0] (example.com/dev).devices[0] (d0).nodes[0].path: must be an absolute path without "
        "'.', '..', '//' or a trailing '/', not 'null.'",
        f"node_devices_resources[1] (example.com/cpu).capacity: {expression}",
        "node_devices_resources[2] (example.com/dev).capacity: must be a whole number, not the text 'x'",
        "node_devices_resources[2] (example.com/dev).name: is already declared as node_devices_resources[0]: "
        "remove or rename one",
        f"node_devices_resources_all: {expression}",
        f"node_devices_resources_more[0] (example.com/some).env.A: {expression}",
        f"node_devices_settings.log_level: {expression}",
    ]


def test_an_inventory_itself_is_for_ansible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("all: {children: {workers: {hosts: {worker1: {}}}}}")
    assert main(["validate", str(path)]) == 1
    expected = (
        f"node-device-plugin: {path}: is an inventory: to check it, run node-device-plugin validate --inventory PATH\n"
    )
    assert capsys.readouterr().err == expected


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
    assert main(["cdi", "render", config, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == specs


@pytest.mark.parametrize(
    ("resources", "rendered", "discovered"),
    [
        (
            "[]",
            "the configuration has no device that needs a CDI spec",
            "the configuration has no resource, so there is nothing to find",
        ),
        (
            "[{name: example.com/dev, env: {A: b}}]",
            "the configuration has no device that needs a CDI spec",
            "example.com/dev  none    -      -     no device found",
        ),
        (
            "[{name: example.com/dev, discover: {paths: [/nowhere/*]}}]",
            "# example.com/dev: the running plugin writes this spec",
            'example.com/dev  none    -      -     nothing on this node matches paths: ["/nowhere/*"]',
        ),
    ],
)
def test_nothing_is_said_to_be_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], resources: str, rendered: str, discovered: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"resources: {resources}\n")
    assert main(["cdi", "render", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [rendered]
    assert main(["discover", str(path)]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == discovered


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert first.startswith("node-device-plugin ")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["run", "--nonsense"], ["verify", "--devices", "two"]])
def test_usage_is_exit_code_2(arguments: "list[str]", capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(arguments, capsys).startswith("usage: node-device-plugin")


def refusal(arguments: "Sequence[str]", capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "proposal"),
    [
        ("statu", "invalid choice: 'statu' (did you mean status?)"),
        ("cdi chek", "invalid choice: 'chek' (did you mean check?)"),
        ("discover --confg=x", "unrecognized arguments: --confg=x (did you mean --config?)"),
        ("status -o ymal", "argument -o/--output: invalid choice: 'ymal' (did you mean yaml?)"),
        ("verify --devices some", "argument --devices: invalid choice: 'some' (choose from one, all)"),
    ],
)
def test_a_mistyped_word(arguments: str, proposal: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = arguments.rpartition(" ")[0].partition(" -")[0]
    said = refusal(arguments.split(), capsys)
    # The usage of the command in question, not that of the program.
    assert said.startswith(f"usage: node-device-plugin {command} ".replace("  ", " "))
    assert proposal in said


def test_internal_commands_are_in_no_list_and_still_there(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ("--help", "help"):
        with pytest.raises(SystemExit) as caught:
            main([arguments])
        assert caught.value.code == 0
        said = capsys.readouterr().out
        assert "holders" in said
        assert "seen" not in said
        assert "capacities" not in said
    assert "seen" not in refusal(["nonsense"], capsys)
    assert main(["seen"]) == 0


def leaves(parser: argparse.ArgumentParser) -> "Iterator[argparse.ArgumentParser]":
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for group in groups:
        for inner in group.choices.values():
            yield from leaves(inner)
    if not groups:
        yield parser


@pytest.mark.parametrize("command", list(leaves(parser())), ids=lambda command: command.prog)
def test_the_help_of_a_command_has_examples_that_it_takes(
    command: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    _, *words = command.prog.split()
    with pytest.raises(SystemExit) as caught:
        main(["help", *words])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert said.endswith(
        "exit codes: 0, no problem; 1, a problem was found or the command failed; 2, wrong usage; 130, interrupted\n"
    )
    examples = [line for line in said.partition("\nexamples:\n")[2].splitlines() if line.startswith("  ")]
    assert examples
    for example in examples:
        _, *arguments = shlex.split(example, comments=True)
        assert arguments[: len(words)] == words
        parser().parse_args(arguments)


@pytest.mark.parametrize("command", list(leaves(parser())), ids=lambda command: command.prog)
def test_a_command_is_the_same_without_all_others(command: argparse.ArgumentParser) -> None:
    alone = {each.prog: each.format_help() for each in leaves(parser(command.prog.split()[1]))}
    assert alone[command.prog] == command.format_help()


def test_the_plugin_starts_without_the_code_of_other_commands(tmp_path: Path) -> None:
    """Nor with a parser of YAML, which only a configuration in YAML or a foreign CDI spec needs."""
    code = (
        "import sys; from node_device_plugin.cli.main import main; import node_device_plugin.daemon.main as daemon;"
        "daemon.run = lambda *_: (_ for _ in ()).throw(OSError('started'));"
        "code = main(['run', '--config', sys.argv[1]]); print(code, *sys.modules)"
    )
    config = tmp_path / "config.json"
    config.write_text(json.dumps(yaml.safe_load(CONFIG)))
    command = [sys.executable, "-c", code, str(config)]
    path = os.pathsep.join([str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True)
    code, *modules = done.stdout.split()
    assert (code, done.stderr) == ("1", "node-device-plugin: the plugin stopped: started\n")
    ours = {name.partition(".")[2] for name in modules if name.startswith("node_device_plugin.")}
    assert {name for name in ours if name.startswith("cli.")} == {"cli.main", "cli.run", "cli.shared"}
    assert not [name for name in ours if name.startswith(("cluster", "diagnostics", "runtime", "verification"))]
    assert not {"yaml", "tempfile", "secrets"} & set(modules)


def test_an_interrupted_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_path: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("node_device_plugin.cli.declared.document", interrupted)
    assert main(["validate"]) == 130


@pytest.mark.parametrize("seconds", ["-3", "nan", "inf", "soon"])
def test_a_time_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(["verify", "--timeout=%s" % seconds], capsys)
    assert "--timeout: must be a number of seconds, 0 or more, not %r" % seconds in said


@pytest.mark.parametrize("problems", [[], ["the kubelet has no such resource"]])
def test_verify_fails_where_it_found_a_problem(
    config: str, problems: "list[str]", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def verified(*_: object) -> Report:
        return Report("containerd 2.3.1", "running", [], problems, {}, {}, None)

    monkeypatch.setattr("node_device_plugin.verification.verify.verify", verified)
    assert main(["verify", "--config", config]) == len(problems)
    assert capsys.readouterr().out.splitlines()[2:] == ["problem: %s" % problem for problem in problems]


def test_verify_reads_the_file_of_an_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def verified(configuration: Configuration, _scope: object) -> Report:
        asked.extend(each.name for each in configuration.resources)
        return Report("containerd 2.3.1", "running", [], [], {}, {}, None)

    monkeypatch.setattr("node_device_plugin.verification.verify.verify", verified)
    path = tmp_path / "null.yml"
    path.write_text("node_devices_resources: [{name: example.com/null, devices: [/dev/null]}]\n")
    assert main(["verify", str(path)]) == 0
    assert asked == ["example.com/null"]


def test_what_the_options_of_verify_ask_for(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def verified(_configuration: object, scope: Scope) -> Report:
        asked.append(scope)
        return Report("containerd 2.3.1", "running", [], [], {}, {}, None)

    monkeypatch.setattr("node_device_plugin.verification.verify.verify", verified)
    verify = ["verify", config, "--socket=/run/x.sock"]
    assert main(verify) == 0
    more = "--kubelet-root /k --static-pod-dir /pods --no-static-pods --kubelet-kubeconfig /kc --max-pods 7 --image i"
    more += (
        " --devices all --proof-pod a/b --proof-pod c/d --plugin p --invocation 5 --record /r --unproven --timeout 9"
    )
    assert main([*verify, *more.split()]) == 0
    assert asked == [
        Scope("/run/x.sock", "/var/lib/kubelet", None, None, "one", False, None, 60.0),
        Scope("/run/x.sock", "/k", "/pods", "i", "all", True, "/r", 9.0, "/kc", 7, False, "p", ("a/b", "c/d"), "5"),
    ]


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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--node-condition"], "--startup-taint and --node-condition need the node's name in the variable NODE_NAME"),
        (["--startup-taint", "a/b"], "--startup-taint must be KEY:EFFECT with the effect NoSchedule or "),
    ],
)
def test_a_run_that_cannot_tell_the_node_object_ends(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    said: str,
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    if "--startup-taint" in options:
        monkeypatch.setenv("NODE_NAME", "worker")
    assert main(["run", "--config", str(config), *options]) == 1
    assert said in capsys.readouterr().err


def test_a_runtime_that_does_not_answer_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", "--socket", str(tmp_path / "none.sock")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "none.sock" in line


@pytest.mark.parametrize("command", ["runtime", "cdi check", "verify"])
@pytest.mark.parametrize(
    ("arguments", "kubelets", "asked"),
    [
        (["--socket", "unix:///run/y.sock"], "/run/crio/crio.sock", "/run/y.sock"),
        ([], "/run/crio/crio.sock", "/run/crio/crio.sock"),
        ([], None, "/run/k0s/containerd.sock"),
    ],
)
def test_the_runtime_of_the_kubelet_is_asked(
    command: str,
    arguments: "list[str]",
    kubelets: "str | None",
    asked: str,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []

    async def runtime(path: str) -> NoReturn:
        found.append(path)
        raise CriError(path, "answer", grpc.StatusCode.UNAVAILABLE, "none")

    monkeypatch.setattr("node_device_plugin.runtime.queries.runtime", runtime)
    monkeypatch.setattr("node_device_plugin.support.kubelet_process.runtime_socket", lambda: kubelets)
    monkeypatch.setattr("node_device_plugin.support.kubelet_process.likely_socket", lambda: "/run/k0s/containerd.sock")
    configured = ["--config", config] if command == "verify" else []
    assert main([*command.split(), *configured, *arguments]) in (0, 1)
    assert found == [asked]


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
    claims: list[str] = []

    async def holders(_root: str, _device_plugins: str, specs: Sequence[str]) -> Any:
        read.append(specs)
        return Holders("kubelet")

    async def with_claims(state: Holders, directory: str) -> Holders:
        claims.append(directory)
        return state

    monkeypatch.setattr("node_device_plugin.kubelet.queries.holders", holders)
    monkeypatch.setattr("node_device_plugin.kubelet.queries.with_claims", with_claims)
    for options in ([], ["--cdi-dir", "/srv/cdi"], ["--cdi-dir", "/etc/cdi"]):
        assert main(["holders", *options]) == 0
    assert capsys.readouterr().out == "no device is held\n" * 3
    usual = ("/etc/cdi", "/var/run/cdi")
    assert read == [usual, (*usual, "/srv/cdi"), usual]
    assert claims == ["/var/run/cdi", "/srv/cdi", "/etc/cdi"]


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


def test_an_inventory_needs_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["validate", "--inventory", "/none/such"]) == 1
    assert capsys.readouterr().err == "node-device-plugin: /none/such: no such inventory\n"
    assert main(["validate", "--inventory", "host1,"]) == 1
    assert "ansible-playbook is not in PATH" in capsys.readouterr().err


def test_only_text_has_a_remark_about_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def holders(*_: object) -> Holders:
        return Holders("checkpoint")

    monkeypatch.setattr("node_device_plugin.kubelet.queries.holders", holders)
    assert main(["holders", "-o", "json"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["holders"]) == 0
    assert capsys.readouterr() == (
        "no device is held\n",
        "no kubelet answers; holders are from its checkpoint, which names pods by UID only\n",
    )


def test_holders_by_cdi_are_not_none_if_some_are_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def holders(*_: object) -> CdiHolders:
        return CdiHolders((), ("the runtime does not answer",))

    monkeypatch.setattr("node_device_plugin.kubelet.cdi_holders.cdi_holders", holders)
    assert main(["holders", "--by-cdi", "--socket=/run/x.sock"]) == 1
    assert capsys.readouterr() == (
        "",
        "node-device-plugin: there may be more holders: the runtime does not answer\n",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "node_devices_resource: []",
            "node_devices_resource: is not a known key; did you mean node_devices_resources,",
        ),
        (
            "node_device_resources: []",
            "node_device_resources: is not a known key; did you mean node_devices_resources,",
        ),
        ("resource: []", "resource: is not a known key; did you mean resources?"),
        ("node_devices_settings: {resource: []}", "node_devices_settings.resource: is not a known key; known keys: "),
    ],
)
def test_a_misspelled_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    path = tmp_path / "workers.yml"
    path.write_text(text)
    assert main(["validate", str(path)]) == 1
    said = capsys.readouterr().err.splitlines()[0]
    assert said.startswith(f"node-device-plugin: {says}")
    assert not said.endswith(" resources")
