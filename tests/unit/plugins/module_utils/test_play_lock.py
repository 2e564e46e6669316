"""One play a node: who gets its lock, what others learn, and how it comes free."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import time
import types
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import node_preflight
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import play


def wanted(owner="one", **changes):
    """A lock as a play asks for it."""
    return {
        "owner": owner,
        "who": "root@bastion",
        "play": "site.yml",
        "controller": "c",
        "pid": 7,
        "host": "node1",
        "seconds": 60,
        **changes,
    }


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "lock")


def test_who_comes_second_is_told_of_the_first(path):
    before = time.time()
    assert play_lock.take(wanted("one"), path=path) is None
    holder = play_lock.take(wanted("two"), path=path)
    assert (holder["owner"], holder["who"], holder["play"], holder["pid"]) == ("one", "root@bastion", "site.yml", 7)
    assert before <= holder["since"] <= time.time()
    assert holder["until"] == pytest.approx(holder["since"] + 60, abs=5)


def test_the_same_play_renews_it_and_has_it_since_it_took_it(path):
    play_lock.take(wanted("one"), path=path)
    first = play_lock.take(wanted("two"), path=path)
    time.sleep(0.01)
    assert play_lock.take(wanted("one", seconds=90), path=path) is None
    second = play_lock.take(wanted("two"), path=path)
    assert second["since"] == first["since"]
    assert second["until"] > first["until"] + 25


def test_a_clock_that_is_set_neither_ends_nor_prolongs_it(path, monkeypatch):
    play_lock.take(wanted("one", seconds=60), path=path)
    now, uptime = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    for years in (-20, 20):
        monkeypatch.setattr(time, "time", lambda years=years: now + years * 365 * 86400)
        holder = play_lock.take(wanted("two"), path=path)
        assert holder["owner"] == "one"
        # For people, by the clock as it is now.
        assert holder["until"] == pytest.approx(time.time() + 60, abs=5)
    # Nobody can set the kernel's, which goes on while the node is suspended.
    monkeypatch.setattr(time, "clock_gettime", lambda clock: uptime + 61 if clock == time.CLOCK_BOOTTIME else 0)
    assert play_lock.take(wanted("two"), path=path) is None


def test_a_lock_of_another_boot_is_nobodys(path, monkeypatch):
    play_lock.take(wanted("one", seconds=3600), path=path)
    monkeypatch.setattr(play_lock, "_boot", lambda: "another")
    assert play_lock.take(wanted("two"), path=path) is None


class Failed(Exception):
    """What a module said as it failed."""


@pytest.fixture
def renew(monkeypatch, path):
    """Renews as a module does that a play with this owner runs; gives what it fails with."""
    monkeypatch.setattr(play_lock, "PATH", path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(play_lock.take, "__defaults__", (False, path))

    def fail_json(msg):
        raise Failed(msg)

    def as_module(owner, **more):
        lock = {**wanted(owner), "over": "*"}
        for name, text in play.environment(lock).items() if owner else ():
            monkeypatch.setenv(name, text)
        try:
            play_lock.renew(types.SimpleNamespace(fail_json=fail_json), **more)
        except Failed as failed:
            return str(failed)
        finally:
            monkeypatch.delenv(play_lock.VARIABLE, raising=False)
        return ""

    return as_module


def test_each_module_of_a_play_renews_its_lock(renew, path):
    play_lock.take(wanted("one", seconds=5), path=path)
    assert renew("one") == ""
    assert json.loads(Path(path).read_text())["lapses"] > time.clock_gettime(time.CLOCK_BOOTTIME) + 50
    # One that has lapsed, too, and one that a reboot has taken away.
    play_lock.take(wanted("one", seconds=-1), path=path)
    assert renew("one") == ""
    assert play_lock.take(wanted("two"), path=path)["owner"] == "one"
    os.unlink(path)
    assert renew("one") == ""
    assert play_lock.take(wanted("two"), path=path)["owner"] == "one"


def test_before_a_long_wait_it_lasts_for_that(renew, path):
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    for at_least, lasts in ((7000, 7000), (1, 60)):
        assert renew("one", at_least=at_least) == ""
        assert json.loads(Path(path).read_text())["lapses"] == pytest.approx(now + lasts, abs=5)


def test_a_module_of_a_play_that_lost_its_lock_writes_nothing(renew, path):
    play_lock.take(wanted("two", pid=8), path=path)
    assert renew("one") == (
        "another play has taken this node from this play: site.yml of root@bastion (process 8). This play writes "
        "nothing more on the node: run it again when the other play has ended"
    )
    assert json.loads(Path(path).read_text())["owner"] == "two"


def test_a_play_that_took_its_lock_by_another_name_of_the_node_goes_on(renew, path):
    """With node_devices_lock_break, as `make bench` does it for a fleet on few nodes."""
    play_lock.take(wanted("two"), path=path)
    assert renew("one") == ""
    assert json.loads(Path(path).read_text())["owner"] == "two"


def test_a_play_without_a_lock_neither_takes_nor_renews_one(renew, path):
    assert renew("") == ""
    assert not os.path.exists(path)


MODULES = Path(__file__).parents[4] / "plugins" / "modules"


def test_every_module_that_writes_on_a_node_renews_it():
    # The others have an action that does their work on the controller.
    on_nodes, renewing = (
        {path.name for path in MODULES.glob("*.py") if re.search(pattern, path.read_text())}
        # node.door renews it before it calls the converge function.
        for pattern in (r"AnsibleModule\(|node\.door\(", r"play_lock\.renew\(module|node\.door\(")
    )
    assert on_nodes - renewing == {"node_scan.py"}  # it writes nothing
    assert "    play_lock.renew(module)\n" in (MODULES.parent / "module_utils" / "converge" / "node.py").read_text()
    assert len(on_nodes) >= 7


def test_an_action_that_waits_renews_it_now_and_then(monkeypatch):
    executed, now = [], [100.0]
    environment = play.environment(wanted("one", seconds=900))
    action = types.SimpleNamespace(
        _task=types.SimpleNamespace(check_mode=False),
        _compute_environment_string=lambda given: given.update(environment),
        _execute_module=lambda **given: executed.append(given) or {"changed": False},
    )
    monkeypatch.setattr(play.time, "monotonic", lambda: now[0])
    renewal = play.Renewal(action, {"a": 1})
    for _second in range(200):
        renewal()
        now[0] += 1
    assert [(each["module_name"], each["module_args"]) for each in executed] == [
        ("nodedevices.kubernetes.node_lock", {"state": "renewed"})
    ] * 3
    executed.clear()
    for seconds in (900, 901):
        renewal.ahead(seconds)
    assert [each["module_args"] for each in executed] == [{"state": "renewed", "seconds": 901}]
    action._execute_module = lambda **given: {"failed": True, "msg": "another play has taken this node"}
    now[0] += 100
    with pytest.raises(AnsibleError, match="another play has taken"):
        renewal()
    for action._task.check_mode in (True, False):
        now[0] += 100
        renewal()
        renewal.ahead(901)
        # What took no lock has none to renew.
        environment.clear()


def test_it_lapses(path):
    play_lock.take(wanted("one", seconds=-1), path=path)
    assert play_lock.take(wanted("two"), path=path) is None


@pytest.mark.parametrize(("over", "gets_it"), [("*", True), ("one", True), ("three", False), ("", False)])
def test_it_is_taken_from_whom_is_named(path, over, gets_it):
    play_lock.take(wanted("one"), path=path)
    assert (play_lock.take(wanted("two", over=over), path=path) is None) is gets_it


def test_only_its_owner_lets_go_of_it(path):
    play_lock.take(wanted("one"), path=path)
    play_lock.release("two", path=path)
    assert os.path.exists(path)
    play_lock.release("one", path=path)
    assert not os.path.exists(path)
    play_lock.release("one", path=path)


def test_check_mode_leaves_nothing_and_sees_who_has_it(path):
    assert play_lock.take(wanted("one"), check=True, path=path) is None
    assert not os.path.exists(path)
    play_lock.take(wanted("one"), path=path)
    content = Path(path).read_text()
    assert play_lock.take(wanted("two"), check=True, path=path)["owner"] == "one"
    assert Path(path).read_text() == content


@pytest.mark.parametrize("content", ["", "{", "[]", '{"owner": "one"}', '{"until": "x", "owner": "one"}'])
def test_a_file_of_a_writer_that_was_killed_is_nobodys(path, content):
    with open(path, "w") as file:
        file.write(content)
    assert play_lock.take(wanted("two"), path=path) is None


def _race(path, number, count, results):
    got = 0
    for _ in range(count):
        if play_lock.take(wanted(str(number)), path=path) is None:
            # Nobody else has it now: whoever comes in here finds the file that we made.
            marker = path + ".inside"
            descriptor = os.open(marker, os.O_CREAT | os.O_EXCL)
            os.close(descriptor)
            os.unlink(marker)
            play_lock.release(str(number), path=path)
            got += 1
    results.put(got)


def test_of_several_that_come_at_once_one_gets_it(path):
    results = multiprocessing.Queue()
    racers = [multiprocessing.Process(target=_race, args=(path, number, 300, results)) for number in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [racer.exitcode for racer in racers] == [0, 0, 0, 0]
    assert sum(results.get() for _ in racers) > 0


@pytest.fixture
def here(monkeypatch):
    """This process, as the playbook that other processes belong to."""
    monkeypatch.setattr(os, "getppid", os.getpid)
    monkeypatch.setattr(play.context, "CLIARGS", {"args": ("playbooks/site.yml",)})
    return play.wanted_lock(30)


def test_it_lapses_later_where_hosts_wait_for_each_other(here):
    assert play.wanted_lock(15, hosts=300)["seconds"] == 15 * 60 + 3000


def test_a_play_is_over_when_its_process_is_or_another_one_has_its_id(here):
    assert here["pid"] == os.getpid()
    assert here["seconds"] == 1800
    assert here["play"] == "site.yml"
    assert not play.is_over(here)
    ended = multiprocessing.Process(target=int)
    ended.start()
    ended.join()
    assert play.is_over({**here, "pid": ended.pid})
    assert play.is_over({**here, "owner": here["owner"] + "1"})


def test_where_there_is_no_proc_ps_tells_whether_a_play_is_over(here, monkeypatch, tmp_path):
    """As on macOS, whose ps, like that of Linux, exits with 1 where it finds no such process."""
    isdir = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc/self" and isdir(path))
    ps = tmp_path / "ps"
    ps.write_text(
        f'#!/bin/sh\ncase "$*" in *"-p {os.getpid()}") echo "Mon Nov 23 10:00:00 2026    " ;; *) exit 1 ;; esac\n'
    )
    ps.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    holder = play.wanted_lock(30)
    assert holder["owner"].endswith(f" {os.getpid()} Mon Nov 23 10:00:00 2026")
    assert not play.is_over(holder)
    # Of another process with the id of this one, ps would tell another start.
    assert play.is_over({**holder, "owner": holder["owner"].replace("10:00", "09:00")})
    ended = multiprocessing.Process(target=int)
    ended.start()
    ended.join()
    assert play.is_over({**holder, "pid": ended.pid})


def test_of_a_play_elsewhere_nothing_is_known(here):
    assert not play.is_over({**here, "controller": "another machine", "pid": 1})


FACTS = {"python": {"version": [3, 11, 0]}, "uid": 0, "runtime": {}, "ledger_problem": None}


@pytest.fixture
def look(monkeypatch, here):
    """Runs the action node_preflight with a lock; the node answers with these holders, one after the other."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def look_at(holders, check=False, facts=None):
        action = object.__new__(node_preflight.ActionModule)
        action._task = types.SimpleNamespace(
            args={"requires": ["python"], "lock": {"minutes": 30, "break": False}},
            check_mode=check,
            get_play=lambda: types.SimpleNamespace(_uuid="play-1"),
        )
        executed = []
        answers = iter(holders)

        def execute(module_name, module_args, task_vars):
            executed.append((module_name.rpartition(".")[2], json.loads(json.dumps(module_args))))
            return {**(facts or FACTS), "locked_by": next(answers)} if executed[-1][0] == "node_preflight" else {}

        action._execute_module = execute
        return action.run(None, {"inventory_hostname": "node1"}), executed

    return look_at


def test_the_node_of_another_play_is_left_alone(look, here):
    holder = {**here, "controller": "another machine", "since": 0, "until": 3600, "who": "eve@elsewhere"}
    result, executed = look([holder])
    assert len(executed) == 1
    assert result["failed"] is True
    assert result["msg"].startswith(
        "Nothing was written.\nnode1: another play works on this node: site.yml of eve@elsewhere (process "
        f"{os.getpid()}), since 1970-01-01 00:00:00 UTC. Wait until it ends. If it has died, its lock expires at "
        "1970-01-01 01:00:00 UTC; to take the lock now, add -e node_devices_lock_break=true"
    )


def test_check_mode_warns_and_goes_on(look, here):
    holder = {**here, "controller": "another machine", "since": 0, "until": 3600}
    result, _executed = look([holder], check=True)
    assert "failed" not in result
    assert "another play works on this node" in result["warnings"][0]
    assert result["python"] == {"version": [3, 11, 0]}
    assert "locked_by" not in result


def test_a_lock_of_a_play_that_is_over_is_taken(look, here):
    holder = {**here, "owner": here["owner"] + "1", "since": 0, "until": 3600}
    result, executed = look([holder, None])
    assert [arguments["lock"]["over"] for _name, arguments in executed] == ["", holder["owner"]]
    assert "failed" not in result
    given = json.loads(result["environment"]["NODE_DEVICES_LOCK"])
    assert given == {key: value for key, value in executed[0][1]["lock"].items() if key != "over"}


def test_two_hosts_of_a_play_that_are_one_node(look, here, path):
    other = play.wanted_lock(30, host="node2")
    assert play_lock.take(other, path=path) is None
    holder = play_lock.take(play.wanted_lock(30, host="node1"), path=path)
    result, executed = look([holder])
    assert result["msg"] == (
        "Nothing was written.\nnode1: host node2 of this play is the same node: remove one of the two hosts from the "
        "inventory, or give each its own address (ansible_host)"
    )
    # The other one's lock stays.
    assert [name for name, _arguments in executed] == ["node_preflight"]
    play_lock.release(play.wanted_lock(0, host="node1")["owner"], path=path)
    assert os.path.exists(path)
    assert not play.is_over(holder)


def test_a_node_that_is_not_ready_is_let_go_of_at_once(look, here):
    result, executed = look([None], facts={**FACTS, "uid": 1000})
    assert result["failed"] is True
    assert [name for name, _arguments in executed] == ["node_preflight", "node_lock"]
    assert executed[1][1] == {"owner": play.wanted_lock(0, host="node1")["owner"]}


def test_minutes_that_are_no_number_are_said_to_be_so(monkeypatch, here):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    action = object.__new__(node_preflight.ActionModule)
    of_play = types.SimpleNamespace(_uuid="play")
    action._task = types.SimpleNamespace(args={"lock": {"minutes": "soon"}}, check_mode=False, get_play=lambda: of_play)
    with pytest.raises(AnsibleError, match=r"lock\.minutes: must be a number above 0, not soon"):
        action.run(None, {})
