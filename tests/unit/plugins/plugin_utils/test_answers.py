"""What of a node's answer passes, and what is one clear error."""

from __future__ import annotations

import ast
import json
import pathlib

import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import quantity
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import tables
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support.answers import (
    ANY,
    LONGEST,
    AnswerError,
    Matching,
    Null,
    Within,
    readable,
    shaped,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import answer_shapes, gathered_facts

PLUGINS = pathlib.Path(__file__).resolve().parents[4] / "plugins"
#: Keys that an action, and not its module, adds to its result.
OF_ACTION = {"read_in", "host", "environment"}


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        (str, "a"),
        (int, 3),
        (float, 3),
        (float, 1.5),
        (bool, False),
        (Null(str), None),
        ([str], ["a", "b"]),
        ({...: [int]}, {"a": [1]}),
        ({"a": str, "b?": int}, {"a": "x"}),
        ({"a": str, ...: ANY}, {"a": "x", "c": [{"d": None}]}),
        (Matching("[a-z]+", "letters"), "abc"),
        (Within(1, 3), 3),
    ],
)
def test_what_has_its_shape_passes(shape, value):
    assert shaped(shape, value) == value


@pytest.mark.parametrize(
    ("shape", "value", "says"),
    [
        ({"a": {"b": str}}, {"a": {"b": ["x"]}}, "a.b is a list, expected a text"),
        ({"a": [int]}, {"a": [1, "2"]}, "a[1] is a text, expected a whole number"),
        # Python's true is a number, too.
        ({"a": int}, {"a": True}, "a is true or false, expected a whole number"),
        ({"a": bool}, {"a": "no"}, "a is a text, expected true or false"),
        ({"a": str}, {}, "a is missing"),
        ({"a": [int, 2]}, {"a": [1, 2, 3]}, "a has 3 elements, at most 2 are possible"),
        ({"a": str}, [], "it is a list, expected a mapping"),
        ({"a": {...: str}}, {"a": {"b": None}}, "a.b is null, expected a text"),
        ({"a": Matching("[a-z]+", "letters")}, {"a": "a\n" * 60}, "a is 'a\\na\\n"),
        ({"a": Within(1, 3)}, {"a": 4}, "a is 4, expected a number from 1 to 3"),
        ({"a": int}, {"a": 1 << 70}, "a is a number out of range"),
        ({"a": float}, {"a": float("inf")}, "a is a number out of range"),
        ({"a": ANY}, {"a": json.loads("[" * 100 + "]" * 100)}, "a has more than 40 levels"),
        ({"a": ANY}, {"a": {1: 2}}, "a has the key 1, expected texts as keys"),
        ({"a": ANY}, {"a": {"b": object()}}, "a is object, expected plain data"),
    ],
)
def test_what_has_not_is_named(shape, value, says):
    with pytest.raises(AnswerError) as error:
        shaped(shape, value)
    assert str(error.value).startswith(says)
    assert len(str(error.value)) < 300


def test_keys_without_a_shape_and_halves_of_characters_go():
    assert shaped({"a": str}, {"a": "\ud800", "ansible_facts": {}}) == {"a": "\ufffd"}


def test_people_read_no_control_characters_and_no_endless_text():
    assert readable("a\r\nb\tc\x1b[2J\r\u202e\x9b") == "a\nb\tc\\u001b[2J\\u000d\\u202e\\u009b"
    assert readable("a" * 9000) == "a" * 8000 + " … (1000 more characters)"
    lines = tables.table(["A", "B"], [["x" * 5_000_000, "y"], ["x", "y"]]).splitlines()
    assert [len(line) for line in lines] == [1005] * 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("python", {"version": [3, 10**9, 1], "executable": "/x"}),
        ("kubelet", {"pid": 1, "version": "1." + "9" * 5000, "root_dir": "/x"}),
        ("locked_by", {"owner": "", "who": "", "play": "", "controller": "", "pid": "../x", "since": 1, "until": 2}),
    ],
)
def test_numbers_and_texts_that_the_controller_uses_have_limits(key, value):
    shape = answer_shapes.MODULES["node_preflight"][key]
    with pytest.raises(AnswerError):
        shaped(shape, value, key)


@pytest.mark.parametrize("text", ["1e999999999", "1e41", "9" * 100 + "E"])
def test_a_quantity_has_a_limit(text):
    assert quantity.number(text) is None
    assert int(quantity.number("9223372036854775807")) == 9223372036854775807


FACTS = {"ansible_hostname": "a", "ansible_memtotal_mb": 7, "ansible_interfaces": ["eth0", "br-1", "os"]}


@pytest.mark.parametrize(
    ("facts", "variables", "found"),
    [
        ({"ansible_eth0": {"device": "eth0"}}, {}, True),
        ({"ansible_br_1": {"device": "br-1"}}, {}, True),
        ({"ansible_local": {"any": {"thing": [1]}}}, {"ansible_local": {}}, True),
        ({"ansible_kernel": "6"}, {"ansible_kernel": "5", "ansible_facts": {"kernel": "5"}}, True),
        # A variable of the inventory, a name that Ansible or somebody else reads, and wrong types.
        ({"ansible_kernel": "6"}, {"ansible_kernel": "mine", "ansible_facts": {}}, False),
        ({"ansible_connection": "local"}, {}, False),
        ({"ansible_become_exe": "/x"}, {}, False),
        ({"ansible_python_interpreter": "/x"}, {}, False),
        ({"discovered_interpreter_python": "/x"}, {}, False),
        ({"device_plugin_deployment": {}}, {}, False),
        ({"ansible_kernel": ["6"]}, {}, False),
        ({"ansible_processor_vcpus": "many"}, {}, False),
        ({"ansible_eth0": "x"}, {}, False),
    ],
)
def test_facts_that_a_node_may_set(facts, variables, found):
    kept, refused = gathered_facts.selected({**FACTS, **facts}, variables)
    assert kept == {**FACTS, **(facts if found else {})}
    assert len(refused) == (0 if found else 1)
    assert all(next(iter(facts)) in each for each in refused)


def test_an_interface_without_a_digit_is_left_out_without_a_message():
    """Cilium and Calico make some on each node."""
    assert gathered_facts.selected({**FACTS, "ansible_os": {"device": "os"}}, {}) == (FACTS, [])


def test_a_status_of_fifty_thousand_devices_fits():
    device = {"id": "d" * 60, "state": "healthy", "reason": None, "kubelet_ids": ["d" * 60], "host_paths": ["d" * 60]}
    assert len(json.dumps([{**device, "health": "", "numa_node": None}] * 50_000, indent=2)) < LONGEST


@pytest.mark.parametrize("key", ["late", "problem"])
def test_the_reason_of_a_resource_is_a_text(key):
    """The table and the page show it. Without an entry, any value would pass."""
    resource = {"name": "a.b/c", "registered": True, "devices": [], "refused": {}}
    ((shape, _most),) = [answer_shapes.COMMANDS["status"]["plugin"].shape["resources"]]
    for value in ("the scan takes long", None):
        assert shaped(shape, {**resource, key: value})[key] == value
    with pytest.raises(AnswerError, match=f"^{key} is a list, expected a text"):
        shaped(shape, {**resource, key: ["x"]})


def test_the_keys_of_every_module_have_a_shape():
    """A key that a module returns or documents would be removed without an entry."""
    for path in sorted((PLUGINS / "modules").glob("*.py")):
        tree = ast.parse(path.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        exits = [each for each in calls if getattr(each.func, "attr", "") == "exit_json"]
        ends = [each for each in calls if getattr(each.func, "attr", "") == "end"]
        if not exits and not ends:
            continue
        documented = yaml.safe_load(
            next(
                node.value.value
                for node in tree.body
                if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "RETURN"
            )
        )
        returned = {keyword.arg for call in (*exits, *ends) for keyword in call.keywords if keyword.arg}
        shape = {**answer_shapes.OF_EVERY_MODULE, **answer_shapes.MODULES[path.stem]}
        known = {key.removesuffix("?") for key in shape if key is not ...}
        assert {*documented, *returned} - OF_ACTION <= known, path.stem
