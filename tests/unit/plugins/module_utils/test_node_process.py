"""Which processes root believes: real processes of real users and namespaces, and systemd's word in a double."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import sys
import time

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import runtime_facts
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import (
    kubelet_process,
    node_process,
)
from real_processes import LISTEN, running, started

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a process of the node's own needs root")


def the_only():
    return node_process.the_only("kubelet", node_process.named("kubelet")[0])


def kubelet_program(directory, mark):
    """A program named kubelet, with an accomplice: whoever runs its first argument leaves a mark."""
    shutil.copy("/bin/sleep", directory / "kubelet")
    trap = directory / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\necho Kubernetes v1.37.2\n")
    trap.chmod(0o755)
    return [str(trap), "60"]


def test_a_users_process_that_calls_itself_kubelet_is_neither_run_nor_believed(anybodys, proc):
    mark = anybodys / "ran-as-root"
    command = kubelet_program(anybodys, mark)
    with running(command, executable=anybodys / "kubelet", user=NOBODY, group=NOBODY) as process:
        proc.show(started(process.pid, "kubelet"))
        facts, refused = kubelet_process.running_kubelet()
    assert facts is None
    assert refused == [f"process {process.pid} calls itself kubelet, but runs as user {NOBODY}"]
    assert not mark.exists()


def test_root_of_a_user_namespace_is_not_the_nodes_root(anybodys, proc):
    mark = anybodys / "ran-as-root"
    command = kubelet_program(anybodys, mark)
    program = f"exec -a {command[0]} {anybodys}/kubelet 60"
    command = ["unshare", "--user", "--map-root-user", "bash", "-c", program]
    with running(command, user=NOBODY, group=NOBODY) as process:
        proc.show(started(process.pid, "kubelet"))
        assert pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(os.fsencode(anybodys))
        facts, refused = kubelet_process.running_kubelet()
    assert facts is None
    assert "in another user namespace" in refused[0]
    assert not mark.exists()


@pytest.mark.parametrize("option", ["--mount", "--pid"])
def test_roots_process_in_a_containers_namespaces_is_not_the_nodes(roots, proc, option):
    shutil.copy("/bin/sleep", roots / "kubelet")
    with running(["unshare", option, "--fork", roots / "kubelet", "60"]) as process:
        until = time.monotonic() + 30
        while not (children := pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()):
            assert time.monotonic() < until
            time.sleep(0.01)
        pid = proc.show(started(int(children[0]), "kubelet"))
        try:
            with pytest.raises(node_process.NotTrusted, match="namespace than the node's first process"):
                node_process.NodeProcess(pid)
            # A kubelet in a container is another node's: no word of it.
            found, refused = node_process.named("kubelet")
            assert (found, bool(refused)) == ([], option == "--mount")
        finally:
            os.kill(pid, signal.SIGKILL)


def test_the_program_of_roots_process_must_be_roots_alone(roots, proc):
    shutil.copy("/bin/sleep", roots / "kubelet")
    with running([roots / "kubelet", "60"]) as process:
        pid = proc.show(started(process.pid, "kubelet"))
        assert node_process.NodeProcess(pid).executable == str(roots / "kubelet")
        for path, mode, owner, problem in (
            (roots, 0o777, 0, f"users other than root can write {roots} (mode 0777): chmod go-w {roots}"),
            (
                roots / "kubelet",
                0o757,
                0,
                f"users other than root can write {roots}/kubelet (mode 0757): chmod go-w {roots}/kubelet",
            ),
            (roots, 0o755, NOBODY, f"{roots} belongs to user id {NOBODY}, not to root: chown root {roots}"),
            (
                roots / "kubelet",
                0o755,
                NOBODY,
                f"{roots}/kubelet belongs to user id {NOBODY}, not to root: chown root {roots}/kubelet",
            ),
        ):
            path.chmod(mode)
            os.chown(path, owner, 0)
            with pytest.raises(node_process.NotTrusted) as refused:
                node_process.NodeProcess(pid)
            assert str(refused.value) == f"runs a program that users other than root can replace: {problem}"
            path.chmod(0o755)
            os.chown(path, 0, 0)
        assert node_process.named("kubelet")[0][0].arguments == [str(roots / "kubelet"), "60"]
        # Root's group has no other user's rights, and nobody replaces root's entries in a sticky directory.
        (roots / "kubelet").chmod(0o775)
        assert node_process.NodeProcess(pid).executable == str(roots / "kubelet")
    (roots / "store").mkdir()
    (roots / "store" / "unit").touch()
    for mode, problem in ((0o1777, None), (0o777, f"users other than root can write {roots}/store (mode 0777)")):
        (roots / "store").chmod(mode)
        said = node_process.not_roots_alone(str(roots / "store" / "unit"))
        assert said is None if problem is None else said.startswith(problem)


def test_a_setuid_program_of_roots_in_a_users_hands_is_the_users(roots, proc):
    """The program is root's, and its effective user is root; its real user is not."""
    shutil.copy("/bin/sleep", roots / "kubelet")
    (roots / "kubelet").chmod(0o4755)
    with running([roots / "kubelet", "60"], user=NOBODY, group=NOBODY) as process:
        pid = proc.show(started(process.pid, "kubelet"))
        if "\t0\t0\t0" not in pathlib.Path(f"/proc/{pid}/status").read_text():
            pytest.skip("setuid has no effect on this file system")
        with pytest.raises(node_process.NotTrusted, match=f"runs as user {NOBODY}"):
            node_process.NodeProcess(pid)


def test_a_setuid_program_that_has_become_root_is_a_users_still(roots, proc):
    """As sudo does before it refuses. Its name and arguments are the user's."""
    shutil.copy("/usr/bin/perl", roots / "sudo")
    (roots / "sudo").chmod(0o4755)
    become = "$) = '0 0'; $( = 0; $< = 0; $> = 0; $0 = 'kubelet'; $| = 1; print qq(root\n); sleep 60"
    with running([roots / "sudo", "-e", become, "--", "--root-dir=/mallorys"], user=NOBODY, group=NOBODY) as process:
        if process.stdout.readline() != "root\n":
            pytest.skip("setuid has no effect on this file system")
        assert "Uid:\t0\t0\t0\t0" in pathlib.Path(f"/proc/{process.pid}/status").read_text()
        with pytest.raises(node_process.NotTrusted, match="runs a setuid program"):
            node_process.NodeProcess(proc.show(process.pid))


def test_the_program_that_runs_is_run_whatever_has_its_path_now(roots, proc):
    program = roots / "kubelet"
    shutil.copy("/bin/sleep", program)
    with running([program, "60"]) as process:
        found = node_process.NodeProcess(proc.show(started(process.pid, "kubelet")))
        program.unlink()
        program.write_text("#!/bin/sh\necho another\n")
        program.chmod(0o755)
        assert "sleep (GNU coreutils)" in found.run("--version")[0]
        assert node_process.NodeProcess(process.pid).replaced
    # It has ended, and its number may be another's.
    assert "sleep (GNU coreutils)" in found.run("--version")[0]
    assert found.environment == {}
    with pytest.raises(node_process.NotTrusted, match="cannot be read"):
        node_process.NodeProcess(process.pid)


def test_a_service_counts_whoever_owns_its_program(roots, proc, monkeypatch):
    """systemd runs it as root already; a mount namespace of its own comes with a hardened unit."""
    monkeypatch.setattr(node_process, "unit_in", lambda cgroup: "kubelet.service")
    shutil.copy("/bin/sleep", roots / "kubelet")
    os.chown(roots, NOBODY, 0)
    with running([roots / "kubelet", "60"]) as process:
        pid = proc.show(started(process.pid, "kubelet"))
        said = {"MainPID": str(pid), "ExecStart": f"{{ path={roots}/kubelet ; argv[]={roots}/kubelet ; }}"}
        monkeypatch.setattr(node_process, "properties", lambda unit, *names: said)
        found = node_process.NodeProcess(pid)
        assert (found.is_main, found.unit) == (True, "kubelet.service")
        assert "sleep (GNU coreutils)" in found.run("--version")[0]
        # Any other process in its cgroup is held to the rule.
        monkeypatch.setattr(node_process, "properties", lambda unit, *names: dict(said, MainPID="1"))
        with pytest.raises(node_process.NotTrusted, match=f"belongs to user id {NOBODY}, not to root"):
            node_process.NodeProcess(pid)
    with running(["/bin/sleep", "60"], user=NOBODY) as process:
        said["MainPID"] = str(proc.show(started(process.pid, "sleep")))
        monkeypatch.setattr(node_process, "properties", lambda unit, *names: said)
        with pytest.raises(node_process.NotTrusted, match=f"runs as user {NOBODY}"):
            node_process.NodeProcess(process.pid)


def test_a_service_that_is_a_script_is_asked_if_only_root_can_write_it(roots, proc, monkeypatch):
    script = roots / "kubelet"
    script.write_text(f"#!{sys.executable}\nimport sys, time\nprint('v1.36.2') if sys.argv[1:] else time.sleep(60)\n")
    script.chmod(0o755)
    monkeypatch.setattr(node_process, "unit_in", lambda cgroup: "kubelet.service")
    with running([script]) as process:
        pid = proc.show(started(process.pid, "kubelet"))
        said = {"MainPID": str(pid), "ExecStart": f"{{ path={script} ; argv[]={script} --config x ; }}"}
        monkeypatch.setattr(node_process, "properties", lambda unit, *names: said)
        found = node_process.NodeProcess(pid)
        assert found.run("--version") == ("v1.36.2\n", None)
        script.chmod(0o777)
        assert found.run("--version") == (
            None,
            f"users other than root can write {script} (mode 0777): chmod go-w {script}",
        )


@pytest.mark.parametrize(
    ("unit", "says"),
    [
        ({"User": "mallory"}, "that unit has the user mallory"),
        ({"User": "1000"}, "that unit has the user 1000"),
        ({"DynamicUser": "yes"}, "that unit has the user of DynamicUser="),
        ({"FragmentPath": "{users}/x.service"}, "{users}/x.service belongs to user id 65534, not to root"),
        ({"FragmentPath": "/etc/passwd", "DropInPaths": "{users}/x.service"}, "{users}/x.service belongs to"),
    ],
)
def test_a_service_of_another_user_is_that_users(roots, proc, monkeypatch, unit, says):
    """Its main process has become root by a setuid program, or its unit's file says what it runs."""
    monkeypatch.setattr(node_process, "unit_in", lambda cgroup: "mallory.service")
    shutil.copy("/bin/sleep", roots / "kubelet")
    users = roots / "users"
    users.mkdir()
    (users / "x.service").touch()
    os.chown(users / "x.service", NOBODY, 0)
    said = {"User": "", "DynamicUser": "no", "FragmentPath": "/etc/passwd", "DropInPaths": ""}
    said.update({name: value.format(users=users) for name, value in unit.items()})
    with running([roots / "kubelet", "60"]) as process:
        pid = proc.show(started(process.pid, "kubelet"))
        monkeypatch.setattr(node_process, "properties", lambda unit, *names: {**said, "MainPID": str(pid)})
        facts, refused = kubelet_process.running_kubelet()
        assert facts is None
        assert refused[0].startswith(
            f"process {pid} calls itself kubelet, but is the main process of mallory.service, and "
            + says.format(users=users)
        )
        for user in ("root", "0"):
            said.update(User=user, DynamicUser="no", FragmentPath="/etc/passwd", DropInPaths="")
            assert node_process.NodeProcess(pid).is_main


def test_a_setuid_program_is_a_users_even_as_a_services_main_process(roots, proc, monkeypatch):
    monkeypatch.setattr(node_process, "unit_in", lambda cgroup: "mallory.service")
    shutil.copy("/bin/sleep", roots / "kubelet")
    (roots / "kubelet").chmod(0o4755)
    with running([roots / "kubelet", "60"]) as process:
        pid = proc.show(started(process.pid, "kubelet"))
        monkeypatch.setattr(node_process, "properties", lambda unit, *names: {"MainPID": str(pid)})
        with pytest.raises(node_process.NotTrusted, match="runs a setuid program"):
            node_process.NodeProcess(pid)


def test_several_processes_are_an_error_that_names_them(roots, proc, monkeypatch):
    """The lower process id may be the wrong one."""
    shutil.copy("/bin/sleep", roots / "kubelet")
    with running([roots / "kubelet", "60"]) as one, running([roots / "kubelet", "60"]) as two:
        pids = sorted(proc.show(started(each.pid, "kubelet")) for each in (one, two))
        says = "several processes of root call themselves kubelet: {0} ({2}), {1} ({2}). Stop each that is not this"
        with pytest.raises(node_process.NotTrusted) as error:
            kubelet_process.running_kubelet()
        assert str(error.value).startswith(says.format(*pids, roots / "kubelet"))
        # Two services are two, too. One service is the kubelet.
        monkeypatch.setattr(node_process, "unit_in", lambda cgroup: "a.service")
        monkeypatch.setattr(node_process, "properties", lambda unit, *names: {"MainPID": str(pids[0])})
        assert the_only().pid == pids[0]
        monkeypatch.setattr(
            node_process, "properties", lambda unit, *names: {"MainPID": str(next(answers)), "User": "root"}
        )
        answers = iter(pids)
        with pytest.raises(node_process.NotTrusted, match=r"kubelet: \d+ \(a.service\), \d+ \(a.service\). Stop"):
            the_only()


def test_a_child_that_has_not_run_its_program_yet_is_no_second_one(roots, proc):
    shutil.copy("/usr/bin/perl", roots / "kubelet")
    fork = "$| = 1; my $child = fork; if ($child) { print qq($child\n) } sleep 60"
    with running([roots / "kubelet", "-e", fork]) as process:
        child = int(process.stdout.readline())
        try:
            for pid in (process.pid, child):
                proc.show(started(pid, "kubelet"))
            assert the_only().pid == process.pid
        finally:
            os.kill(child, signal.SIGKILL)


def test_services_come_first(roots, proc, monkeypatch):
    monkeypatch.setattr(node_process, "unit_in", lambda cgroup: "kubelet.service")
    shutil.copy("/bin/sleep", roots / "kubelet")
    with running([roots / "kubelet", "60"]) as one, running([roots / "kubelet", "60"]) as two:
        pids = sorted(proc.show(started(each.pid, "kubelet")) for each in (one, two))
        monkeypatch.setattr(node_process, "properties", lambda unit, *names: {"MainPID": str(pids[1])})
        assert [each.pid for each in node_process.named("kubelet")[0]] == [pids[1], pids[0]]


def test_a_users_process_behind_a_socket_is_neither_run_nor_believed(anybodys, proc):
    path = str(anybodys / "x.sock")
    command = ["containerd", "-e", LISTEN, path]
    with running(command, executable="/usr/bin/perl", user=NOBODY, group=NOBODY) as process:
        assert process.stdout.readline() == "listens\n"
        proc.show(process.pid)
        facts = runtime_facts.runtime_facts(path)
    assert facts == {"socket": path, "problem": f"process {process.pid} listens there, but it runs as user {NOBODY}"}


def test_a_socket_of_the_same_path_in_another_namespace_is_nobodys(anybodys, proc):
    """/proc/net/unix shows the path, in whichever mount namespace it is."""
    for name in ("run", "elsewhere"):
        (anybodys / name).mkdir(mode=0o777)
        (anybodys / name).chmod(0o777)
    path = anybodys / "run" / "x.sock"
    script = f"mount --bind {anybodys}/elsewhere {anybodys}/run && exec perl -e '{LISTEN}' {path}"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    with running(command, user=NOBODY, group=NOBODY) as process:
        assert process.stdout.readline() == "listens\n"
        proc.show(process.pid)
        assert str(path) in pathlib.Path("/proc/net/unix").read_text()
        assert node_process.listener(str(path)) == (None, "no such file or directory")
        # Where the hidden socket is in reach, its owner counts.
        there = str(anybodys / "elsewhere" / "x.sock")
        assert "in another user namespace" in node_process.listener(there)[1]


SOCKETS = """\
Triggers=other.service
Listen=/run/other.sock (Stream)

Triggers=docker.service
Listen=/elsewhere (Stream)
Listen={path} (Stream)
"""


def test_a_service_that_has_its_socket_from_systemd_is_found_by_what_the_socket_triggers(tmp_path, proc, monkeypatch):
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as server, running(["/bin/sleep", "60"]) as process:
        server.bind(str(path))
        server.listen()
        monkeypatch.setattr(node_process, "peer", lambda path: 1)
        asked = []

        def answer(command):
            asked.append(command[-1])
            return SOCKETS.format(path=path), None

        pids = iter(["0", str(proc.show(started(process.pid, "sleep")))])
        monkeypatch.setattr(node_process, "answer_of", answer)
        monkeypatch.setattr(
            node_process,
            "properties",
            lambda unit, *names: {"MainPID": next(pids)} if (unit, names) == ("docker.service", ("MainPID",)) else {},
        )
        found, problem = node_process.listener(str(path))
        assert (found.pid, problem) == (process.pid, None)
        pids = iter(["0"])
        nothing = (None, "systemd listens on the socket but has not started a service for it")
        assert node_process.listener(str(path), seconds=0) == nothing
        assert node_process.listener("/none", seconds=0) == nothing


def test_what_is_no_socket(tmp_path):
    (tmp_path / "file").touch()
    assert node_process.listener(str(tmp_path / "file")) == (None, "it is not a socket")
    assert node_process.listener(str(tmp_path / "none")) == (None, "no such file or directory")


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--config", "/a", "--config=/b"], "/b"),
        (["--config=/a", "-c", "/b"], "/b"),
        (["-config", "/a"], "/a"),
        (["--config"], None),
        ([], None),
    ],
)
def test_the_last_of_an_option_counts(arguments, value):
    assert node_process.option(arguments, "--config", "-config", "-c") == value


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/containerd.service\n", "containerd.service"),
        ("0::/kubelet.slice/kubelet.service/init.scope\n", "kubelet.service"),
        ("11:memory:/system.slice\n1:name=systemd:/system.slice/crio.service\n", "crio.service"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", None),
        # A user may name a cgroup in any way, and a message may have the name in a command.
        ("0::/user.slice/a;reboot.service\n", None),
        ("0::/user.slice/\u00e4.service\n", None),
        ("", None),
    ],
)
def test_a_process_is_in_the_innermost_service_of_its_cgroup(cgroup, unit):
    assert node_process.unit_in(cgroup) == unit
