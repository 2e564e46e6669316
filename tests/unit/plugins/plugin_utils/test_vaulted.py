"""Where vaulted values are hidden: in what people read, and in nothing that a later task needs."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import vaulted
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import Values

VALUE = 'pass "word"'


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (VALUE, "(vaulted)"),
        (f"a{VALUE}b", "a(vaulted)b"),
        ('{"a": "pass \\"word\\""}', '{"a": "(vaulted)"}'),
        ("Authorization: cGFzcyAid29yZCI=", "Authorization: (vaulted)"),
        # Of several lines each one, because YAML indents them.
        ("  BEGIN KEY\n  abcdefgh\n", "  (vaulted)\n  (vaulted)\n"),
        # A short one is part of other words.
        ("x7", "x7"),
        ("7", "(vaulted)"),
        ("pin: '7', port: 77", "pin: '(vaulted)', port: 77"),
        ("another", "another"),
    ],
)
def test_the_forms_of_a_value(text, hidden):
    values = Values([VALUE, "BEGIN KEY\nabcdefgh", "7", ""])
    assert values.hide([{"key": text}]) == [{"key": hidden}]
    assert values.hide({text: 1}) == {hidden: 1}
    assert values.found_in((text,)) is (text != hidden)


def test_a_longer_value_goes_first():
    assert Values(["secret", "secret-of-all"]).hide("secret-of-all secret") == "(vaulted) (vaulted)"


def action(result, only_shown=False):
    class Action(NodeAction):
        def act(self, given):
            return result

    Action.only_shown = only_shown
    made = object.__new__(Action)
    made._task = types.SimpleNamespace(args={}, async_val=0, check_mode=False)
    made._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/tmp/of-ansible"))
    made._values = lambda _task_vars: Values([VALUE])
    return made


def test_each_warning_has_the_name_of_a_host():
    """Ansible prints the warnings of all hosts without a name, and equal ones once."""
    told = ["a: told", "b: told", "kept: /dev/a, held by b", "c: no host"]
    variables = {"inventory_hostname": "a", "groups": {"all": ["a", "b"]}}
    said = action({"warnings": told}).run(None, variables)["warnings"]
    assert said == ["a: told", "b: told", "a: kept: /dev/a, held by b", "a: c: no host"]
    # As an empty list would be printed.
    assert action({"changed": False}).run(None, variables) == {"changed": False}


def test_a_later_tasks_keys_stay_and_are_not_shown():
    result = {"changed": True, "resources": [VALUE], "diff": {"after": VALUE}, "msg": VALUE}
    assert action(result).run() == {
        "changed": True,
        "resources": [VALUE],
        "diff": {"after": "(vaulted)"},
        "msg": "(vaulted)",
        "_ansible_no_log": True,
    }
    # Nothing is left to hide.
    assert "_ansible_no_log" not in action({"changed": True, "diff": VALUE}).run()


@pytest.mark.parametrize(("result", "only_shown"), [({"failed": True}, False), ({"changed": False}, True)])
def test_what_only_people_read_is_shown_without_it(result, only_shown):
    assert action({**result, "seen": VALUE}, only_shown).run() == {**result, "seen": "(vaulted)"}


@pytest.mark.parametrize(("arguments", "hidden"), [({"files": [{"content": VALUE}]}, True), ({"files": []}, False)])
def test_a_nodes_syslog_does_not_get_it(monkeypatch, arguments, hidden):
    given = []
    monkeypatch.setattr(ActionBase, "_execute_module", lambda _self, _name, **more: given.append(more) or {})
    action({})._execute_module(module_name="x", module_args=arguments, task_vars={"a": 1})
    assert given[0]["module_args"] == arguments
    assert given[0]["task_vars"] == {"a": 1, **({"ansible_no_target_syslog": True} if hidden else {})}


def test_without_a_password_no_variable_is_read():
    made = object.__new__(type("Action", (NodeAction,), {}))
    made._loader = types.SimpleNamespace(_vault=types.SimpleNamespace(secrets=[]))
    assert not made._values(types.SimpleNamespace())


@pytest.mark.parametrize(
    ("declared", "used"),
    [
        ("plain", []),
        ("{{ first }}", ["second-value"]),
        # Another way to name a variable.
        ("{{ lookup('vars', 'thi' ~ 'rd') }}", ["second-value", "third-value"]),
        ("{{ vars['third'] }}", ["second-value", "third-value"]),
    ],
)
def test_only_variables_that_the_declaration_names_are_decrypted(declared, used):
    """Each decryption takes milliseconds, for each task of each host."""
    variables = {
        "node_devices_resources": [{"env": {"A": declared}}],
        "first": "{{ second | trim }} {{ first }}",
        "second": "second-value",
        "third": "third-value",
        "hostvars": {"other": {"third": "x"}},
    }
    found = {value for value in vaulted._used(variables) if isinstance(value, str) and value.endswith("-value")}
    assert sorted(found) == used


def test_a_spec_template_may_use_any_variable():
    assert "s" in vaulted._used({"cdi_specs_templates": [{"src": "a.yaml.j2"}], "secret": "s"})


def test_every_action_hides():
    import importlib
    import pathlib

    names = [path.stem for path in (pathlib.Path(vaulted.__file__).parents[1] / "action").glob("*.py")]
    assert len(names) >= 20
    for name in names:
        module = importlib.import_module(f"ansible_collections.nodedevices.kubernetes.plugins.action.{name}")
        assert issubclass(module.ActionModule, NodeAction), name
