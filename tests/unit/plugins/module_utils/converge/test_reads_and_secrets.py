"""How often the node reads a runtime's configuration, and that no secret of it is in an answer.

containerd is a script that prints the file it is given, and whose dumps are counted.
"""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import sys
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import runtime_facts
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import cdi_runtime, registry
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge.node import Node as ConvergeNode
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import launch, program
from ansible_collections.nodedevices.kubernetes.plugins.modules import node_preflight
from real_processes import as_root
from transaction_node import Node

from node_device_plugin.runtime import configuration
from node_device_plugin.support import toml

CRI = '[plugins."io.containerd.grpc.v1.cri"]'
PLAIN = f'version = 2\n{CRI}\n  enable_cdi = false\n  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
SECRETS = '''version = 2 # password = "CANARY"
imports = ["conf.d/*.toml"] # CANARY
# CANARY
[plugins."io.containerd.grpc.v1.cri"] # CANARY
  enable_cdi = false # CANARY
  cdi_spec_dirs = [ # CANARY
    "/opt/cdi", # CANARY
  ]
  containerd.default_runtime_name = "runc" # CANARY
  [plugins."io.containerd.grpc.v1.cri".registry.configs."https://u:CANARY@registry.example".auth]
    username = "CANARY"
    password = 'CANARY'
    auth = """CANARY
line"""
    identitytoken = \'\'\'CANARY\'\'\'
  [plugins."io.containerd.grpc.v1.cri".registry.headers]
    "Authorization" = ["Basic CANARY", # and CANARY
      'CANARY']
    inline = { a = "CANARY", "b.c" = 'CANARY', d = ["CANARY"] }
'''
INLINE = 'version = 2\nplugins = { "io.containerd.grpc.v1.cri" = { stream_server_address = "CANARY" } } # CANARY\n'
DEFAULTS = "  containerd.runtimes.runc.runtime_type = 'io.containerd.runc.v2'\n"

_counted: list[str] = []
_is_counting = False


def _audit(event, arguments):
    # Without a mode, it is one of the calls below open().
    if _is_counting and event == "open" and arguments[1] == "r":
        _counted.append(str(arguments[0]))


sys.addaudithook(_audit)


class Machine:
    """A node with a containerd. carry_out: whether its transaction is carried out, in this process."""

    def __init__(self, top, programs, monkeypatch, text):
        self.node = Node(top / "node")
        self.config = self.node.config
        self.config.write_text(text)
        self.node.start()
        self.log = top / "dumps"
        self.program = programs / "containerd"
        self.refuses = top / "refuses"
        self.program.write_text(
            f'#!/bin/sh\n[ "$1" = --config ] || exit 1\necho "$2" >> {self.log}\n'
            f'[ ! -e {self.refuses} ] || {{ cat "$2" >&2; exit 1; }}\n'
            f'cat "$2"\n'
        )
        self.program.chmod(0o755)
        self.command = programs / "plugin"
        answer = {"cdi": {"enabled": False, "spec_dirs": None}, "held": [], "unknown": []}
        self.command.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
        self.command.chmod(0o755)
        self.reads = 0
        monkeypatch.setattr(cdi_runtime, "PLACES", self.node.places)
        monkeypatch.setattr(cdi_runtime, "written_since", lambda pid, paths: [])
        monkeypatch.setattr(ledgers.Ledger.__init__, "__defaults__", (self.node.places.directory,))
        monkeypatch.setattr(cdi_runtime, "running_kubelet", lambda: (None, []))
        monkeypatch.setattr(cdi_runtime, "runtime_facts", self.facts)
        monkeypatch.setattr(launch, "carry_out", self._carry_out)

    def _carry_out(self, places, plan):
        # The daemon of this node says only one of the directories.
        plan = plan._replace(question=["ask"], spec_dirs=plan.spec_dirs and ["/etc/cdi"])
        with self.node.commands():
            program.run(places, launch._prepared(places, plan))
            return launch.settle(places)

    def facts(self, socket="/run/x.sock"):
        """As runtime_facts reads them of a process."""
        answer = functools.partial(runtime_facts.installed(str(self.program)), name="containerd")
        config = runtime_facts.containerd_config(answer, ["containerd", "--config", str(self.config)])
        return {
            "socket": socket,
            "pid": 7,
            "name": "containerd",
            "executable": str(self.program),
            "unit": "containerd.service",
            "version": "1.7.24",
            "config": config,
        }

    def module(self, check_mode):
        def run_command(command, handle_exceptions):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr

        return types.SimpleNamespace(
            check_mode=check_mode,
            run_command=run_command,
            selinux_enabled=lambda: False,
            set_default_selinux_context=lambda path, changed: None,
            params={"code": {"sha256": ""}, "cdi": True},
        )

    def converge(self, check_mode=False, facts=None, **params):
        given = {**dict.fromkeys(cdi_runtime.PARAMS), "command": str(self.command), "specs": {}, "may_restart": True}
        node = ConvergeNode(self.module(check_mode), facts=facts)
        return node.converged(cdi_runtime.converge, {**given, **params})

    def counted(self, do):
        """Do it. Returns its result, the paths of the dumps, and how often this process read the root file."""
        global _is_counting
        self.log.write_text("")
        _counted.clear()
        _is_counting = True
        try:
            result = do()
        finally:
            _is_counting = False
        dumps = ["root" if path == str(self.config) else "copy" for path in self.log.read_text().splitlines()]
        return result, dumps, _counted.count(str(self.config))


@pytest.fixture
def machine(tmp_path, roots, monkeypatch):
    return lambda text: Machine(tmp_path, roots, monkeypatch, text)


#: Reads of the root file: to plan, and in the transaction, which alone has the lock, before it is replaced. The daemon
#: of this test reads it, too.
PLANNED, LOCKED, DAEMON = 1, 1, 1


@as_root
def test_one_dump_before_a_change_and_one_after_it(machine):
    node = machine(PLAIN)
    # What the preflight has read is not read again.
    facts = node.facts()
    answer, dumps, reads = node.counted(lambda: node.converge(check_mode=True, facts={"runtime": facts}))
    assert (answer["restarted"], dumps, reads) == (True, ["copy"], 0)
    answer, dumps, reads = node.counted(lambda: node.converge(check_mode=True))
    assert (answer["restarted"], dumps, reads) == (True, ["root", "copy"], PLANNED)
    answer, dumps, reads = node.counted(node.converge)
    assert answer.get("problems", []) == []
    assert (answer["restarted"], dumps, reads) == (True, ["root", "copy"], PLANNED + LOCKED + DAEMON)
    assert node.config.read_text() == PLAIN.replace("= false", "= true")
    # A second run changes nothing, and asks the daemon alone.
    node.command.write_text(node.command.read_text().replace("false", "true"))
    answer, dumps, reads = node.counted(node.converge)
    assert (answer["msg"], dumps, reads) == ("CDI is effective", ["root"], PLANNED)
    answer, dumps, reads = node.counted(lambda: node.converge(state="absent"))
    assert (answer["restarted"], dumps, reads) == (True, ["root", "copy"], PLANNED + LOCKED + DAEMON)
    assert node.config.read_text() == PLAIN


@as_root
def test_each_import_is_read_once(machine):
    node = machine('version = 2\nimports = ["conf.d/*.toml"]\n')
    imported = node.config.parent / "conf.d" / "a.toml"
    imported.parent.mkdir()
    imported.write_text("[debug]\nlevel = 'info'\n")
    facts, _dumps, _reads = node.counted(node.facts)
    assert _counted.count(str(imported)) == 1
    found, _dumps, _reads = node.counted(lambda: list(configuration.obstacles(facts, True)))
    assert (found, _counted.count(str(imported))) == ([], 0)
    # The role's adapter, in the same process.
    node.counted(lambda: node.converge(check_mode=True, facts={"runtime": facts}))
    assert _counted.count(str(imported)) == 0


@as_root
def test_no_text_is_parsed_twice(machine, monkeypatch):
    """By the preflight, which looks for obstacles and lets the role look, in one process."""
    node, texts, loads = machine(PLAIN), [], toml.tomllib.loads

    def counted(text, **options):
        # A quoted key is parsed as a text of its own.
        texts.extend([text] if not text.startswith("_ = ") else [])
        return loads(text, **options)

    monkeypatch.setattr(toml.tomllib, "loads", counted)
    toml.document.cache_clear()
    facts = node.facts()
    assert node_preflight.judged(facts, node.module(True))[1] == ["/etc/cdi", "/var/run/cdi"]
    answer = node.converge(check_mode=True, facts={"runtime": facts})
    assert answer["restarted"]
    # The file, which containerd prints as it is, and the new text.
    assert texts == [PLAIN, PLAIN.replace("= false", "= true")]


def everything(node, facts):
    """All that leaves the node: what the preflight says, and what the module answers, also where it refuses."""
    module = node.module(True)
    asked = {"cdi_runtime": [{"state": state, "command": str(node.command)} for state in ("present", "absent")]}
    yield node_preflight.judged(facts, module)
    yield node_preflight.ledger_facts()
    yield registry.answers(module, asked, {"runtime": facts})
    unwritable = {**facts, "config": {**facts["config"], "unwritable": "it is read-only"}}
    yield node.converge(check_mode=True, facts={"runtime": unwritable})
    yield node.converge(check_mode=True, facts={"runtime": {**facts, "unit": None}})
    node.refuses.touch()
    yield node.converge(check_mode=True, facts={"runtime": facts})
    yield node.converge(check_mode=True)
    yield node.converge(check_mode=True, state="absent")
    node.refuses.unlink()


@as_root
@pytest.mark.parametrize("text", [SECRETS + DEFAULTS, INLINE, SECRETS + "= CANARY\n", 'version = "CANARY"\n'])
def test_no_byte_of_a_secret_leaves_the_node(machine, text):
    node = machine(text.replace(DEFAULTS, "").replace(CRI + " # CANARY\n", CRI + " # CANARY\n" + DEFAULTS))
    imported = node.config.parent / "conf.d" / "a.toml"
    imported.parent.mkdir(exist_ok=True)
    imported.write_text('[debug] # CANARY\nlevel = "CANARY"\n')
    before = list(everything(node, node.facts()))
    done = node.converge()
    after = list(everything(node, node.facts()))
    undone = node.converge(state="absent")
    said = json.dumps([before, done, after, undone])
    assert "CANARY" not in said
    assert node.config.read_text().count("CANARY") == text.count("CANARY")
    if "restarted" in done:
        # It is the same to a reader who guesses: of the ledger, only paths.
        assert str(node.config) in after[1][1]["ledger"]
        assert "enable_cdi = true" in done["diff"][0]["prepared"] or "(hidden)" in done["diff"][0]["prepared"]
        assert undone["restarted"] is True
    else:
        assert done["problems"]


STOPPED = {"socket": "/run/x.sock", "problem": "connection refused"}


def stopped(node):
    return STOPPED


def stopped_after_a_change_by_someone_else(node):
    node.config.write_text(node.config.read_text() + "# CANARY\n")
    return STOPPED


def stopped_with_a_file_that_is_not_utf_8(node):
    node.config.write_bytes(node.config.read_bytes() + b"# CANARY \xff\n")
    return STOPPED


def stopped_without_the_file(node):
    node.config.unlink()
    return STOPPED


def with_another_root_file(node):
    facts = node.facts()
    return {**facts, "config": {**facts["config"], "real_path": str(node.config.parent / "other.toml")}}


def with_keys_that_someone_else_restored(node):
    node.config.write_text(node.config.read_text().replace("enable_cdi = true", "enable_cdi = false") + "# CANARY\n")
    return node.facts()


@as_root
@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("runtime", "is_kept"),
    [
        (stopped, False),
        (stopped_after_a_change_by_someone_else, True),
        (stopped_with_a_file_that_is_not_utf_8, True),
        (stopped_without_the_file, True),
        (with_another_root_file, False),
        (with_keys_that_someone_else_restored, True),
    ],
)
def test_no_secret_leaves_the_node_if_files_are_put_back_without_a_restart(machine, runtime, is_kept, check_mode):
    text = PLAIN + SECRETS.partition("\n  containerd.default")[2].partition("\n")[2]
    node = machine(text)
    assert node.converge()["restarted"] is True
    facts = runtime(node)
    answer = node.converge(check_mode, {"runtime": facts}, state="absent")
    path = f"{node.config}.node-devices-before" if is_kept else str(node.config)
    assert (answer["changed"], answer["written"], answer["removed"]) == (True, [path] * is_kept, [path] * (not is_kept))
    assert "CANARY" not in json.dumps(answer)
    (diff,) = answer["diff"]
    assert (diff["path"], set(diff)) == (path, {"path", "prepared"})
    changed = ["+(hidden)"] if is_kept else ["-  enable_cdi = true", "+  enable_cdi = false"]
    assert set(changed) <= set(diff["prepared"].splitlines())
    if not check_mode:
        assert pathlib.Path(path).read_text() == text


@as_root
def test_no_secret_leaves_the_node_if_a_restart_undoes_only_some_files(machine):
    node = machine(PLAIN)
    unread = node.config.parent / "unread.toml"
    assert node.converge()["restarted"] is True
    unread.write_text("ours, CANARY")
    with ledgers.Ledger() as ledger:
        before = ledgers.storable({**ledgers.state_of(str(unread)), "content": b"theirs, CANARY"})
        entry = {"kind": "file", "owner": "cdi_runtime", "sha256": ledgers.sha256(b"ours, CANARY"), "mode": 0o644}
        ledger.entries[str(unread)] = {**entry, "before": before}
        ledger.save()
    answer = node.converge(state="absent")
    assert (answer["restarted"], unread.read_text(), node.config.read_text()) == (True, "theirs, CANARY", PLAIN)
    assert "CANARY" not in json.dumps(answer)
