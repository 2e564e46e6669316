"""What a converge function may use of the module that calls it, and how the module ends with the function's answer."""

from __future__ import annotations

import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Report


class Module:
    """A module that writes down how it ended, and whose commands end with this code."""

    params = {"name": "x"}

    def __init__(self, code=0, check_mode=False):
        self.code, self.check_mode, self.ended, self.labelled = code, check_mode, None, []

    def run_command(self, command, handle_exceptions=True):
        assert handle_exceptions is False
        return self.code, "", "first\nlast\n" if self.code else ""

    def set_default_selinux_context(self, path, changed):
        self.labelled.append((path, changed))

    def exit_json(self, **answer):
        self.ended = answer

    def fail_json(self, msg, **answer):
        raise SystemExit({"msg": msg, **answer})


def finished(converge):
    module = Module()
    node_module.finish(module, converge)
    return module.ended


def test_the_answer_and_its_warnings_are_the_modules():
    def converge(node, params):
        node.warn("careful")
        return {"changed": True, "name": params["name"], "problems": []}

    assert finished(converge) == {"changed": True, "name": "x", "warnings": ["careful"]}


def test_what_a_function_keeps_in_the_facts_is_not_a_part_of_the_answer():
    """Ansible adds the module's parameters to its answer, which must be JSON."""
    module = Module()
    module.params = {"facts": {"runtime": "x"}}

    def converge(node, _params):
        node.facts["specs"] = object()
        return {"runtime": node.facts["runtime"]}

    node_module.finish(module, converge)
    assert module.ended == {"runtime": "x", "warnings": []}
    assert module.params == {"facts": {"runtime": "x"}}


@pytest.mark.parametrize("checks", [{}, {"required_by": {"a": ["b"]}}])
@pytest.mark.parametrize("code", [None, {"sha256": "x"}])
def test_the_door_validates_loads_the_code_if_it_is_given_and_converges(monkeypatch, checks, code):
    module, given, did = Module(), [], []
    module.params = {"name": "x", "code": code}
    monkeypatch.setattr(node_module, "AnsibleModule", lambda **arguments: given.append(arguments) or module)
    monkeypatch.setattr(node_module.node_code, "load_for", lambda which: did.append(which is module))
    file = types.SimpleNamespace(PARAMS={"name": {"type": "str"}}, converge=lambda _node, given: {"is": given["name"]})
    if checks:
        file.CHECKS = checks
    node_module.door(file)
    assert given == [{"argument_spec": file.PARAMS, "supports_check_mode": True, **checks}]
    assert did == ([True] if code else [])
    assert module.ended == {"is": "x", "warnings": []}


def refusing(node, _params):
    node.warn("careful")
    raise LedgerConflict("/x belongs to another role")


def lacking(_node, _params):
    raise OSError(2, "No such file or directory", "systemctl")


@pytest.mark.parametrize(
    ("converge", "failure"),
    [
        (
            refusing,
            {"msg": "/x belongs to another role", "changed": False, "warnings": ["careful"]},
        ),
        (
            lambda _node, _params: {"changed": True, "actions": ["stopped"], "problems": ["one", "two"]},
            {"msg": "one\ntwo", "changed": True, "actions": ["stopped"], "warnings": []},
        ),
        (lacking, {"msg": "systemctl: No such file or directory"}),
    ],
)
def test_problems_fail_the_module(converge, failure):
    with pytest.raises(SystemExit) as ended:
        finished(converge)
    assert ended.value.args[0] == failure


def test_a_command_that_must_succeed():
    assert node_module.Node(Module(code=3)).run_command(["a", "b"]) == (3, "", "first\nlast\n")
    assert node_module.Node(Module()).run_command(["a", "b"], check_rc=True) == (0, "", "")
    with pytest.raises(OSError, match=r"^a b: last$"):
        node_module.Node(Module(code=3)).run_command(["a", "b"], check_rc=True)


@pytest.mark.parametrize("check", [False, True])
def test_check_mode_saves_no_ledger_and_knows_whether_a_run_would(monkeypatch, tmp_path, check):
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(str(tmp_path / "ledger")))
    node = node_module.Node(Module(check_mode=not check), check)
    with node.ledger() as ledger:
        node.managed(ledger, "role").converge([])
    assert node.has_unshown_work is False
    with node.ledger() as ledger:
        ledger.entries["/x"] = {"kind": "file", "owner": "role"}
        ledger.save()
    assert node.has_unshown_work is check
    assert list(Ledger(str(tmp_path / "ledger")).entries) == ([] if check else ["/x"])
    # The module need not look once more, if it has found other work before.
    with node.ledger():
        pass
    assert node.has_unshown_work is check


def test_what_stays_is_warned_of_and_what_is_written_gets_its_label(monkeypatch, tmp_path):
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(str(tmp_path / "ledger")))
    module, report = Module(), Report()
    node = node_module.Node(module)
    report.kept.append({"path": "/x", "reason": "it was changed"})
    answer = node.answer(report, more=1)
    assert (answer["more"], answer["kept"], node.warnings) == (1, report.kept, ["kept: /x, it was changed"])
    with node.ledger() as ledger:
        wanted = {"path": str(tmp_path / "file"), "kind": "file", "content": b"", "mode": 0o644}
        node.managed(ledger, "role").converge([wanted])
    assert module.labelled == [(str(tmp_path / "file"), False)]
