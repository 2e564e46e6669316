"""What is read of a node's container runtime and kubelet: by real processes, sockets and files."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import struct
import subprocess
import threading
import time
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import runtime_facts, writable
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import (
    bounded_reads,
    kubelet_process,
    node_process,
)
from real_processes import as_root, listening, running, started

from node_device_plugin.runtime import configuration


@as_root
def test_k3s_is_its_own_containerd(roots, proc, monkeypatch):
    """``bin/containerd`` is a link to ``bin/k3s`` in its releases: the first argument tells what runs."""
    shutil.copy("/bin/sleep", roots / "k3s")
    (roots / "containerd").symlink_to("k3s")
    with running(["containerd", "60"], executable=roots / "k3s") as process:
        found = node_process.NodeProcess(proc.show(started(process.pid, "k3s")))
        assert runtime_facts.names_of(found) == ("containerd", str(roots / "containerd"))
        monkeypatch.setattr(runtime_facts, "_NAMES", ("crio",))
        assert runtime_facts.names_of(found) == ("k3s", str(roots / "k3s"))


@as_root
@pytest.mark.parametrize("replaced", [False, True])
def test_the_installed_program_is_asked_after_an_upgrade_alone(tmp_path, proc, monkeypatch, replaced):
    listener = runtime_facts.listener

    def found(path):
        process, problem = listener(path)
        process.replaced = replaced
        return process, problem

    monkeypatch.setattr(runtime_facts, "listener", found)
    monkeypatch.setattr(runtime_facts, "installed", lambda path: lambda *arguments, name: (f"{name} v9.9.9", None))
    with listening(proc, tmp_path / "cri.sock"):
        facts = runtime_facts.runtime_facts(str(tmp_path / "cri.sock"))
    assert (facts["installed_version"] == "9.9.9", facts["version"] == "9.9.9") == (replaced, False)


@as_root
def test_a_runtime_is_found_behind_its_socket(tmp_path, proc):
    with listening(proc, tmp_path / "cri.sock", "-c", "relative.toml") as pid:
        facts = runtime_facts.runtime_facts(str(tmp_path / "cri.sock"))
        version = re.search(r"v(\d\S*)", subprocess.check_output(["perl", "--version"], text=True)).group(1)
        assert (facts["pid"], facts["name"], facts["version"]) == (pid, "containerd", version)
        assert facts["installed_version"] == version
        assert facts["config"]["path"] == os.path.join(os.getcwd(), "relative.toml")
        bare = runtime_facts.runtime_facts(str(tmp_path / "cri.sock"), with_config=False)
        assert bare == {name: value for name, value in facts.items() if name != "config"}


@as_root
def test_a_program_that_an_upgrade_installed_is_asked_if_only_root_can_write_it(roots, proc):
    program = roots / "containerd"
    program.write_text("#!/bin/sh\n[ $1 = --version ] && echo containerd v2.4.2\n")
    program.chmod(0o755)
    new = functools.partial(runtime_facts.installed(str(program)), name="containerd")
    assert runtime_facts.version_of(new) == "2.4.2"
    program.chmod(0o777)
    assert runtime_facts.version_of(new) is None
    assert new("x") == (None, f"users other than root can write {program} (mode 0777): chmod go-w {program}")


@as_root
def test_files_that_a_runtime_may_not_have_read_are_told(tmp_path, proc):
    """They were written after it started."""
    config, imported = tmp_path / "config.toml", tmp_path / "conf.toml"
    config.write_text('imports = ["conf.toml"]\n')
    os.utime(config, (time.time() - 10,) * 2)
    with listening(proc, tmp_path / "cri.sock", "--config", str(config)):
        began = runtime_facts.started_at(os.getpid())
        assert time.time() - 86400 < began < time.time()
        for path, later, told in (
            (imported, -10, []),
            (imported, +10, [str(imported)]),
            (config, +10, [str(config), str(imported)]),
        ):
            path.touch()
            os.utime(path, (time.time() + later,) * 2)
            facts = runtime_facts.runtime_facts(str(tmp_path / "cri.sock"))
            assert runtime_facts.written_since(facts["pid"], configuration.of(facts).read_at_start) == told
    assert runtime_facts.started_at(2**22 + 1) is None


@pytest.mark.parametrize(("said", "mode"), [("KillMode=control-group\n", "control-group"), ("", None), (None, None)])
def test_what_else_a_restart_ends_is_asked(monkeypatch, said, mode):
    asked = []
    monkeypatch.setattr(node_process, "answer_of", lambda command: (asked.append(command) or said, None))
    facts = runtime_facts.unit_facts("containerd.service", "containerd", ["/usr/bin/containerd"])
    assert facts == {"unit": "containerd.service", "kill_mode": mode, "next_start": []}
    assert runtime_facts.unit_facts(None, "containerd", []) == {"unit": None, "kill_mode": None, "next_start": []}
    assert asked == [["systemctl", "show", "--property=KillMode,ExecStart", "--", "containerd.service"]]


@pytest.mark.parametrize(
    ("name", "now", "exec_start", "changes"),
    [
        ("containerd", ["-c", "/a.toml"], "/usr/bin/containerd --config=/a.toml", []),
        ("containerd", ["--log-level", "info"], "/usr/bin/containerd --log-level debug", []),
        ("containerd", ["--config", "/a"], "/usr/bin/containerd -c /b", [("--config", ["/a"], ["/b"])]),
        ("containerd", [], "/usr/bin/containerd --config /b", [("--config", [], ["/b"])]),
        ("crio", ["-d", "/a.d"], "/usr/bin/crio", [("--config-dir", ["/a.d"], [])]),
        # What only their processes tell: a variable, a wrapper, k3s with its own containerd.
        ("crio", ["--config", "/a"], "/usr/bin/crio $CRIO_CONFIG_OPTIONS", []),
        ("containerd", ["--config", "/a"], "/usr/local/sbin/start-containerd --config /b", []),
        ("containerd", ["-c", "/var/lib/rancher/x"], "/usr/local/bin/k3s server", []),
        ("containerd", ["--config", "/a"], None, []),
    ],
)
def test_options_that_the_next_start_gives_otherwise_are_told(monkeypatch, name, now, exec_start, changes):
    # As systemd 252 prints it.
    said = "ExecStart={ path=%s ; argv[]=%s ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 }\n"
    said = "KillMode=process\n" + (said % (exec_start.split()[0], exec_start) if exec_start else "")
    monkeypatch.setattr(node_process, "answer_of", lambda command: (said, None))
    facts = runtime_facts.unit_facts("x.service", name, [f"/usr/bin/{name}", *now])
    assert facts["kill_mode"] == "process"
    assert facts["next_start"] == changes


def test_why_a_file_is_no_text(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin").write_bytes(b"\xe9")
    facts = [runtime_facts.file_facts(str(tmp_path / name)) for name in ("folder", "latin")]
    assert [(each["content"], each["why_no_text"]) for each in facts] == [
        (None, "it is a directory"),
        (None, "it is not UTF-8"),
    ]


@pytest.fixture
def writable_file(tmp_path):
    """A configuration file."""
    path = tmp_path / "a file.toml"
    path.write_text("")
    return str(path)


def test_a_file_that_can_be_replaced(writable_file):
    assert writable.obstacle(writable_file) is None
    assert writable.obstacle(os.path.join(os.path.dirname(writable_file), "to", "come")) is None


@pytest.mark.parametrize("look", [writable.obstacle, bounded_reads.text_of])
def test_a_pipe_does_not_hold_up_the_look(tmp_path, look):
    os.mkfifo(tmp_path / "pipe")
    found = []
    looking = threading.Thread(target=lambda: found.append(look(str(tmp_path / "pipe"))), daemon=True)
    looking.start()
    looking.join(20)
    is_held_up = looking.is_alive()
    # This ends a look that waits for a writer.
    os.close(os.open(tmp_path / "pipe", os.O_RDWR))
    assert (is_held_up, found) == (False, [None])


def test_a_read_only_file_system_is_seen(writable_file, monkeypatch):
    monkeypatch.setattr(writable.os, "statvfs", lambda path: types.SimpleNamespace(f_flag=os.ST_RDONLY))
    assert writable.obstacle(writable_file) == "its file system is mounted read-only"
    assert writable.obstacle("/nowhere/at/all") == "its file system is mounted read-only"


def test_a_mount_point_is_seen(writable_file, tmp_path):
    mounts = tmp_path / "mountinfo"
    escaped = writable_file.replace(" ", r"\040")
    mounts.write_text(f"36 35 98:0 /x / rw - ext3 /dev/root rw\n37 35 98:0 /y {escaped} rw - ext3 /dev/root rw\n")
    assert "it is a mount point" in writable.obstacle(writable_file, str(mounts))


def test_an_immutable_file_is_seen(writable_file):
    if subprocess.run(["chattr", "+i", writable_file], capture_output=True, check=False).returncode:
        pytest.skip("no chattr, or a file system without attributes")
    try:
        said = writable.obstacle(writable_file)
        assert "is immutable" in said
        # The remedy, as it stands there.
        subprocess.run(said.partition(": run ")[2], shell=True, check=True)
        assert writable.obstacle(writable_file) is None
    finally:
        subprocess.run(["chattr", "-i", writable_file], check=True)


def test_the_kernels_attributes_are_understood(writable_file, monkeypatch):
    """Where files cannot be made immutable, such as in a container."""
    monkeypatch.setattr(writable.fcntl, "ioctl", lambda descriptor, request, buffer: struct.pack("l", 0x80000 | 0x10))
    assert "is immutable: run chattr -i" in writable.obstacle(writable_file)


ENDPOINT = "unix:///run/crio/crio.sock"


@pytest.mark.parametrize(
    "text",
    [
        f"containerRuntimeEndpoint: {ENDPOINT}\n",
        f'apiVersion: v1\ncontainerRuntimeEndpoint: "{ENDPOINT}" # ours\n',
        json.dumps({"kind": "KubeletConfiguration", "containerRuntimeEndpoint": ENDPOINT}),
        # As Amazon's nodes have it.
        json.dumps({"kind": "KubeletConfiguration", "containerRuntimeEndpoint": ENDPOINT}, indent=4),
    ],
)
def test_the_kubelets_endpoint_is_read_from_its_configuration(text):
    assert kubelet_process.setting([text], "containerRuntimeEndpoint") == ENDPOINT
    assert kubelet_process.setting([text], "staticPodPath") is None


def test_the_kubelets_configuration_is_parsed_once_for_all_keys(monkeypatch):
    text, parsed, loads = json.dumps({"maxPods": 7, "staticPodPath": "/pods"}), [], json.loads
    monkeypatch.setattr(kubelet_process.json, "loads", lambda text: parsed.append(text) or loads(text))
    assert [kubelet_process.setting([text], key) for key in ("maxPods", "staticPodPath")] == ["7", "/pods"]
    assert parsed == [text]


def test_the_kubelets_drop_ins_override_its_configuration(tmp_path):
    (tmp_path / "config.yaml").write_text("containerRuntimeEndpoint: unix:///a.sock\nstaticPodPath: /pods\n")
    directory = tmp_path / "config.d"
    directory.mkdir()
    for name, endpoint in {"10.conf": "b", "20.conf": "c", "30.yaml": "d"}.items():
        (directory / name).write_text(f"containerRuntimeEndpoint: unix:///{endpoint}.sock\n")
    arguments = [f"--config={tmp_path / 'config.yaml'}", f"--config-dir={directory}"]
    texts, is_known = kubelet_process.configuration_of(arguments)
    assert is_known
    assert kubelet_process.setting(texts, "containerRuntimeEndpoint") == "unix:///c.sock"
    assert kubelet_process.setting(texts, "staticPodPath") == "/pods"
    assert kubelet_process.configuration_of([]) == ([], True)
    assert kubelet_process.configuration_of(["--config=/none"]) == ([], False)


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock"),
        # Both of which the kubelet takes.
        ("unix:/run/containerd/containerd.sock", "/run/containerd/containerd.sock"),
        ("/run/containerd/containerd.sock", "/run/containerd/containerd.sock"),
        ("", None),
        (None, None),
    ],
)
def test_an_endpoint_as_a_path(endpoint, path):
    assert (kubelet_process.socket_path(endpoint) or None) == path


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (None, "/run/containerd/containerd.sock"),
        ('staticPodPath: /pods\ncontainerRuntimeEndpoint: ""\n', "/run/containerd/containerd.sock"),
        ("containerRuntimeEndpoint: unix:///run/crio/crio.sock\n", "/run/crio/crio.sock"),
    ],
)
def test_a_kubelet_that_names_no_endpoint_has_its_default(tmp_path, config, path):
    """Whoever else runs a container runtime there."""

    def kubelet(*arguments):
        given = ["kubelet", *map(str, arguments)]
        return types.SimpleNamespace(pid=1, unit=None, arguments=given, run=lambda *_: ("Kubernetes v1.37.2\n", None))

    arguments = []
    if config:
        (tmp_path / "config.yaml").write_text(config)
        arguments = ["--config", tmp_path / "config.yaml"]
    assert kubelet_process.kubelet_of(kubelet(*arguments)).cri_socket == path
    gone = kubelet("--config", tmp_path / "gone.yaml")
    assert kubelet_process.kubelet_of(gone).cri_socket is None


@pytest.mark.parametrize("name", ["a.toml", "more.toml", "gone.toml", "latin.toml", "directory.toml"])
def test_the_import_that_containerd_refuses_is_shown(tmp_path, name):
    """And nothing else of its message, even if it looks like a path."""
    config, directory = tmp_path / "config.toml", tmp_path / "conf.d"
    (directory / "directory.toml").mkdir(parents=True)
    config.write_text('imports = ["conf.d/*.toml", "conf.d/gone.toml"]\n')
    (directory / "a.toml").write_text('imports = ["more.toml"]\n')
    (directory / "more.toml").write_text("")
    (directory / "latin.toml").write_bytes(b"\xe9")
    said = f"containerd: failed to load TOML from {directory / name}: /S3cret plugin io.containerd.grpc.v1.cri"
    found = runtime_facts.containerd_config(lambda *_: (None, said), ["containerd", "--config", str(config)])
    assert found["problem"] == said.replace("/S3cret", "(hidden)")


@pytest.mark.parametrize(("arguments", "is_given"), [(["-c", "c.toml"], True), ([], False)])
def test_a_file_that_the_command_line_names_must_exist(tmp_path, arguments, is_given):
    """Only without such an option does the daemon start without its file."""
    found = runtime_facts.containerd_config(lambda *_: ("", None), ["containerd", *arguments], str(tmp_path))
    assert found["is_given"] is is_given


CRIO = """\
#!/bin/sh
# Says what it was asked.
echo "$@"
"""


@pytest.fixture
def crio(tmp_path):
    """Reads CRI-O's configuration, of a process with these arguments and variables."""
    program = tmp_path / "crio"
    program.write_text(CRIO)
    program.chmod(0o755)
    return lambda arguments, **environment: runtime_facts.crio_config(
        lambda *given: node_process.answer_of([str(program), *given]),
        ["crio", *arguments],
        str(tmp_path),
        environment,
    )


def test_crio_is_asked_as_it_was_started(tmp_path, crio):
    """A root file that is named and not there it refuses, and packages since 1.30 bring none."""
    (tmp_path / "crio.conf.d" / "more").mkdir(parents=True)
    for name in (".first", "99-x.conf", "more/y"):
        (tmp_path / "crio.conf.d" / name).write_text(name)
    config = crio(["-d", "crio.conf.d"])
    directory = tmp_path / "crio.conf.d"
    assert config["effective"] == f"--config-dir {directory} config\n"
    assert config["files"] == {str(directory / name): name for name in (".first", "99-x.conf", "more/y")}
    assert config["given_dirs"] is None
    config = crio([], CONTAINER_CONFIG="/srv/c", CONTAINER_CONFIG_DIR="/srv/d")
    assert config["effective"] == "--config /srv/c --config-dir /srv/d config\n"
    assert crio(["--config=/srv/b"], CONTAINER_CONFIG="/srv/c")["path"] == "/srv/b"


def test_the_drop_in_that_crio_refuses_is_shown(tmp_path):
    drop_in = tmp_path / "crio.conf.d" / "10-x.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("")
    said = f"failed to load {drop_in}: {drop_in.parent}/S3cret"
    found = runtime_facts.crio_config(lambda *_: (None, said), ["crio", "-d", "crio.conf.d"], str(tmp_path), {})
    assert found["problem"] == said.replace("/S3cret", "(hidden)")


@pytest.mark.parametrize(
    ("arguments", "environment", "given"),
    [
        (["--cdi-spec-dirs", "/a", "--cdi-spec-dirs=/b"], {"CONTAINER_CDI_SPEC_DIRS": "/c"}, "--cdi-spec-dirs=/a,/b"),
        ([], {"CONTAINER_CDI_SPEC_DIRS": "/c,/d"}, "CONTAINER_CDI_SPEC_DIRS=/c,/d"),
    ],
)
def test_what_overrides_crios_files_is_seen(crio, arguments, environment, given):
    assert crio(arguments, **environment)["given_dirs"] == given


@as_root
def test_complaint_7_the_distributions_own_socket_is_used_where_two_containerds_run(tmp_path, proc):
    k3s_socket, docker_socket = str(tmp_path / "k3s.sock"), str(tmp_path / "containerd.sock")
    with listening(proc, docker_socket):
        assert kubelet_process.likely_socket([k3s_socket, docker_socket]) == docker_socket
        with listening(proc, k3s_socket):
            assert kubelet_process.likely_socket([k3s_socket, docker_socket]) == k3s_socket
    assert kubelet_process.likely_socket([]) == "/run/containerd/containerd.sock"
    # Which may be Docker's, beside CRI-O or cri-dockerd.
    assert kubelet_process.SOCKETS[-1] == "/run/containerd/containerd.sock"


def test_the_socket_is_the_users_or_else_the_kubelets(monkeypatch):
    monkeypatch.setattr(runtime_facts, "likely_socket", lambda: "/likely.sock")
    kubelet = {"cri_socket": "/kubelet.sock"}
    given = [("unix:///user.sock", kubelet), (None, kubelet), (None, {"cri_socket": None}), (None, None)]
    found = [runtime_facts.socket_of(*each) for each in given]
    assert found == ["/user.sock", "/kubelet.sock", "/likely.sock", "/likely.sock"]


def test_the_controller_gets_nothing_of_the_configuration():
    facts = {"socket": "/s", "pid": 7, "name": "crio", "executable": "/x", "config": {"content": "a"}, "kill_mode": "x"}
    assert runtime_facts.shown(facts) == {"socket": "/s", "pid": 7, "name": "crio"}
    assert runtime_facts.shown({"socket": "/s", "problem": "gone"}) == {"socket": "/s", "problem": "gone"}
