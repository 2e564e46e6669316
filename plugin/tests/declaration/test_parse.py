"""Reading a declaration: every mistake is found, all at once, each with its field."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from node_device_plugin.declaration import DeclarationError, parse_configuration, parse_resources
from node_device_plugin.declaration.serialise import configuration_to_data, resources_to_data

EVERYTHING = """
- name: example.com/dev
  cdi_kind: vendor.com/class
  replicas: 3
  env: {"DEV_{index}": "{id} {path} {host_path} {serial}", "DEV_{index}_N": "{index}"}
  container_edits:
    env: [A=b, C=]
    mounts:
      - {host_path: tmpfs, container_path: /t, type: tmpfs, options: [nosuid]}
      - {host_path: /x, container_path: /y}
    hooks: [{name: createContainer, path: /bin/true, args: ["true"], env: [X=y], timeout: 3}]
    additional_gids: [44]
  devices:
    - id: dev0
      properties: {serial: "/a b/"}
      nodes: [{path: /dev/a, host_path: /dev/b, permissions: rwm, uid: 0, gid: 44, mode: "0660"}, {path: /dev/c}]
      container_edits: {env: [D=e]}
    - {id: dev1, required: false, nodes: [{path: /dev/d}], properties: {serial: x}}
- {name: example.com/none}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        parse_resources(yaml.safe_load(text))
    return [str(problem) for problem in caught.value.problems]


def test_everything_that_can_be_declared_is_read_and_written_again() -> None:
    resources = parse_resources(yaml.safe_load(EVERYTHING))
    data = resources_to_data(resources)
    assert parse_resources(data) == resources
    assert data[1] == {"name": "example.com/none", "devices": []}
    assert data[0] == yaml.safe_load(EVERYTHING)[0]
    device = resources[0].devices[0]
    assert (device.nodes[0].mode, device.nodes[1].host_path) == (0o660, "/dev/c")


def test_a_number_of_devices_that_the_node_must_have() -> None:
    (found,) = parse_resources([{"name": "a.bb/cc", "discover": {"paths": ["/dev/x*"]}, "min_devices": 3}])
    assert (found.min_devices, resources_to_data([found])[0]["min_devices"]) == (3, 3)
    assert "min_devices" not in resources_to_data(parse_resources([{"name": "a.bb/cc"}]))[0]
    declared = "devices: [{id: a, required: false, nodes: [/dev/a]}]"
    assert problems(f"[{{name: a.bb/cc, {declared}, min_devices: 2}}]") == [
        "resources[0] (a.bb/cc).min_devices: is 2, but the resource declares only 1 device and discovers none: declare "
        "more devices, or lower it"
    ]
    where = "resources[0] (a.bb/cc).min_devices: must be "
    hint = "a whole number, not the text '2' (write it without quotes; for an expression, add '| int')"
    assert problems(f'[{{name: a.bb/cc, {declared}, min_devices: "2"}}]') == [where + hint]
    assert problems(f"[{{name: a.bb/cc, {declared}, min_devices: -1}}]") == [where + "at least 0, not -1"]


class Tagged(str):
    """Text as Ansible hands it over. PyYAML writes no such type."""


def tagged(value: Any) -> Any:
    if isinstance(value, dict):
        return {Tagged(key): tagged(item) for key, item in value.items()}
    if isinstance(value, list):
        return [tagged(item) for item in value]
    return Tagged(value) if isinstance(value, str) else value


def test_text_with_ansibles_tags_becomes_plain_text() -> None:
    data = yaml.safe_load(EVERYTHING)
    read = resources_to_data(parse_resources(tagged(data)))
    assert yaml.safe_dump(read) == yaml.safe_dump(resources_to_data(parse_resources(data)))


def test_all_problems_come_at_once_each_with_its_field() -> None:
    found = problems(
        """
        - {name: nonsense, bogus: 1}
        - name: example.com/xx
          env: {"X_{index}": "{id}"}
          devices: [{id: a}, {id: a, nodes: [{path: dev/x}]}]
        - {name: example.com/xx, replicas: 0}
        """
    )
    assert [problem.split(":")[0] for problem in found] == [
        "resources[0] (nonsense).bogus",
        "resources[0] (nonsense).name",
        "resources[1] (example.com/xx).devices[1] (a).nodes[0].path",
        "resources[1] (example.com/xx).devices[1] (a).id",
        "resources[2] (example.com/xx).replicas",
        "resources[2] (example.com/xx).name",
    ]


def test_a_node_may_have_every_number_that_linux_has_and_no_other() -> None:
    """12 bits for the driver, 20 for the device."""
    node = "[{name: a.b/cc, devices: [{id: d, nodes: [{path: /dev/x, major: %d, minor: %d}]}]}]"
    (resource,) = parse_resources(yaml.safe_load(node % (4095, 1048575)))
    (parsed,) = resource.devices[0].nodes
    assert (parsed.major, parsed.minor) == (4095, 1048575)
    found = problems(node % (4096, 1048576))
    assert [problem.rpartition(": ")[2] for problem in found] == [
        "must be at most 4095, not 4096",
        "must be at most 1048575, not 1048576",
    ]


def test_what_only_a_template_would_be_filled_in_with_is_no_part_of_edits() -> None:
    found = problems(
        """
        - name: example.com/xx
          container_edits:
            env: ["A={path}", "B={\\"json\\": 1}", "C={level} {serial}"]
            mounts: [{host_path: "/x/{id}", container_path: "/y/{index}"}]
            hooks: [{name: createRuntime, path: /h, args: [h, "{host_path}"], env: ["H={match1}"]}]
          devices:
            - {id: a, nodes: [{path: /dev/a}], properties: {serial: x}, container_edits: {env: ["D={id}"]}}
            - {id: b, nodes: [{path: /dev/b}], container_edits: {env: ["D={serial}"]}}
        - name: example.com/yy
          discover: {paths: ["/dev/yy*"]}
          container_edits: {env: ["M={match1}", "F={level}"]}
        """
    )
    says = ": {%s} would stay literal: placeholders work only in the resource's env and annotations"
    assert found == [
        "resources[0] (example.com/xx).devices[0] (a).container_edits.env[0]" + says % "id",
        "resources[0] (example.com/xx).container_edits.env[0]" + says % "path",
        "resources[0] (example.com/xx).container_edits.env[2]" + says % "serial",
        "resources[0] (example.com/xx).container_edits.mounts[0].host_path" + says % "id",
        "resources[0] (example.com/xx).container_edits.mounts[0].container_path" + says % "index",
        "resources[0] (example.com/xx).container_edits.hooks[0] (createRuntime).args[1]" + says % "host_path",
        "resources[1] (example.com/yy).container_edits.env[0]" + says % "match1",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "resources: must be a list, not a mapping"),
        ("- 7", "resources[0]: must be a mapping, not a number"),
        ("- {devices: []}", "resources[0].name: is missing"),
        ("- {name: 5}", "name: must be text, not a number"),
        ("- {name: a.b/c, replicas: true}", "replicas: must be a whole number, not true"),
        ("- {name: a.b/c, devices: [{}]}", "devices[0].id: is missing"),
        ("- {name: a.b/c, devices: [{id: ' '}]}", "id: is empty"),
        ('- {name: a.b/c, devices: [{id: "a\\nb"}]}', r"id: must be printable, without leading or trailing spaces"),
        ("- {name: a.b/c, devices: [{id: ' a'}]}", "id: must be printable, without leading or trailing spaces"),
        ("- {name: a.b/c, devices: [{id: 2026-01-01}]}", "id: must be text, not a date (write"),
        ("- {name: a.b/c, replicas: '8'}", "must be a whole number, not the text '8' (write it without quotes)"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: //dev/x}]}]}", "nodes[0].path: must be an absolute path"),
        ("- {name: a.b/c, devices: [{id: " + "x" * 64 + "}]}", "more than 63 characters"),
        ("- {name: a.b/c, replicas: 11, devices: [{id: " + "x" * 60 + "}]}",
         "x' has more than 59 characters, the limit for a device id to which replicas adds '::10'"),
        ("- {name: x/c, devices: [{id: d, nodes: [{path: /dev/x}]}]}", "crashes containerd's parser"),
        ("- {name: a.b/c, cdi_kind: ab/c}", "cdi_kind: the CDI class 'c' has fewer than two characters"),
        ("- {name: a.b/cc, devices: [{id: /a, nodes: [{path: /dev/x}]}]}", "put other text into properties"),
        ("- {name: nonsense, devices: [{id: /a, nodes: [{path: /x}]}]}", "put other text into properties"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /dev/../x}]}]}", "nodes[0].path: must be an absolute path"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /dev/x, host_path: '/dev/ttyUSB*'}]}]}",
         "nodes[0].host_path: must be one path without wildcards or placeholders, not '/dev/ttyUSB*'"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: '/dev/{match1}'}]}]}",
         "nodes[0].path: must be one path without wildcards or placeholders, not '/dev/{match1}'"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x}, {path: /x}]}]}", "nodes: the path /x is listed twice"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x, permissions: rr}]}]}", "must be made of r, w and m"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x, mode: '999'}]}]}", "three octal digits"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x, mode: 0660}]}]}",
         "nodes[0].mode: must be text, not a number (write it in quotes: YAML reads 0660 as the number 432)"),
        ("- {name: a.b/c, discover: {usb: [{vendor: 0403}]}}",
         "usb[0].vendor: must be text, not a number (write it in quotes: YAML reads 0403 as the number 259)"),
        ("- {name: a.b/c, discover: {usb: [{vendor: 1209}]}}", "usb[0].vendor: must be text, not a number (write"),
        ("- {name: a.b/c, devices: [{id: d, properties: {id: x}}]}",
         "properties.id: 'id' is not a placeholder's name"),
        ("- {name: a.b/c, devices: [{id: d, properties: {größe: x}}]}",
         "properties.größe: 'größe' is not a placeholder's name"),
        ("- {name: a.b/c, devices: [{id: d, properties: {port: x, Port: y}}]}",
         "properties.Port: differs from port only in case, and both would set DEVICE_PROPERTY_PORT"),
        ("- {name: a.b/c, devices: [{id: d, properties: {v: 3}}]}", "properties.v: must be text, not a number"),
        ("- {name: a.b/c, container_edits: {env: [x]}}", "env[0]: must have the form NAME=value"),
        ("- {name: a.b/c, container_edits: {env: [1x=y]}}", "must have the form NAME=value, with a NAME"),
        ("- {name: a.b/c, container_edits: {mounts: [{host_path: x, container_path: /y}]}}", "mounts[0].host_path"),
        ("- {name: a.b/c, container_edits: {mounts: [{host_path: x, container_path: /y, type: bind}]}}",
         "mounts[0].host_path: must be an absolute path"),
        ("- {name: a.b/c, container_edits: {mounts: [{host_path: x, container_path: /y, type: none}]}}",
         "mounts[0].host_path: must be an absolute path"),
        ("- {name: a.b/c, container_edits: {mounts: [{host_path: '', container_path: /y, type: tmpfs}]}}",
         "mounts[0].host_path: is empty"),
        ("- {name: a.b/c, container_edits: {mounts: [{host_path: /x, container_path: /y, type: ''}]}}",
         "mounts[0].type: is empty"),
        ("- {name: a.b/c, container_edits: {mounts: [{host_path: /x, container_path: /y, options: [ro, '']}]}}",
         "mounts[0].options[1]: is empty"),
        ("- {name: a.b/c, container_edits: {mounts: [{host_path: /, container_path: /y}]}}",
         "mounts[0].host_path: must not be the root directory"),
        ("- {name: a.b/c, container_edits: {hooks: [{name: x, path: /y}]}}", "must be one of prestart"),
        ("- {name: a.b/c, container_edits: {additional_gids: [0]}}", "additional_gids[0]: must be between 1"),
        ("- {name: a.b/c, container_edits: {additional_gids: [4294967296]}}", "additional_gids[0]: must be between 1"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x, uid: 4294967296}]}]}", "uid: must be at most"),
        ("- {name: a.bb/cc, replicas: 1000000, discover: {paths: [/x*]}}", "replicas: is too high: the shares"),
        ("- {name: a.bb/cc, replicas: 9223372036854775, devices: [/dev/x]}",
         "replicas: is too high: the shares of one device exceed the kubelet's limit of 4194304 bytes for a list: "
         "lower it"),
        ("- {name: a.b/c, container_limit: 9223372036854775808}", "container_limit: must be at most"),
        ("- {name: a.b/c, health: {command: [/x], period: 86401}}", "health.period: must be at most 86400"),
        ("- {name: a.b/c, health: {command: [/x], timeout: 86401}}", "health.timeout: must be at most 86400"),
        ("- {name: a.b/c, container_edits: {hooks: [{name: poststop, path: /y, timeout: 86401}]}}",
         "hooks[0] (poststop).timeout: must be at most 86400"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x, major: 4096}]}]}", "major: must be at most 4095"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x, minor: 1048576}]}]}", "minor: must be at most 1048575"),
        ("- {name: a.b/c, env: {A: 5}}", "env.A: must be text, not a number (write it in quotes"),
        ("- {name: a.b/c, env: {A: on}}", "env.A: must be text, not true (write it in quotes"),
        ("- {name: a.b/c, env: {A: null}}", "env.A: must be text, not nothing"),
        ("- {name: a.b/c, env: {A: [x]}}", "env.A: must be text, not a list"),
        ("- {name: a.b/c, env: {'A_{id}': x}, devices: [{id: d}]}", "may contain only the placeholder {index}"),
        ("- {name: a.b/c, env: {'1': x}}", "env.1: '1' is not a variable name"),
        ("- {name: a.b/c, env: {A: '{v}'}, devices: [{id: d}]}", "{v} is not a property of device 'd'"),
        ("- {name: a.b/c, env: {A: '{path}'}, devices: [{id: d}]}", "{path} is not a property of device 'd'"),
        ("- {name: a.b/c, env: {A: x}, devices: [{id: d}, {id: e}]}", "container_limit: 1"),
        ("- {name: a.b/c, env: {A: x}, devices: [{id: d}]}\n- {name: a.b/e, env: {A: x}, devices: [{id: f}]}",
         "resources[1] (a.b/e).env.A: the variable A is also set by a.b/c (A)"),
        ("- {name: a.b/c, env: {'A_{index}': x}, devices: [{id: d}]}\n"
         "- {name: a.b/e, env: {A_0: x}, devices: [{id: f}]}",
         "the variable A_0 is also set by a.b/c (A_{index})"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x, placeholder: index}]}]}",
         "nodes[0].placeholder: 'index' is not a placeholder's name"),
        ("- {name: a.b/c, devices: [{id: d, nodes: [{path: /x, placeholder: a}, {path: /y, placeholder: a}]}]}",
         "nodes[1].placeholder: {a} is already the placeholder of another node or a property"),
        ("- {name: a.bb/cc, discover: {usb: [{vendor: '0403'}], nodes: [{path: /dev/tty*, placeholder: port}]}}",
         "discover.nodes[0].placeholder: {port} is already the placeholder of another node or a property"),
        ("- {name: a.bb/cc, env: {'A_{index}': '{tty}'},"
         " discover: {usb: [{vendor: '0403'}], nodes: [{path: /dev/tty*, placeholder: tty, optional: true}]}}",
         "the placeholder {tty} is unknown; discovered devices have"),
        ("- {name: a.b/c, joined_env: {'A_{index}': x}, devices: [{id: d}]}",
         "joined_env.A_{index}: is one variable for all devices of a container"),
        ("- {name: a.b/c, joined_env: {A: x}, env: {A: x}, devices: [{id: d}]}",
         "joined_env.A: is also set by env: remove one"),
        ("- {name: a.b/c, joined_env: {A: x}, devices: [{id: d}]}\n- {name: a.b/e, env: {A: x}, devices: [{id: f}]}",
         "resources[1] (a.b/e).env.A: the variable A is also set by a.b/c (A)"),
        ("- {name: a.b/c, devices: [{id: d}]}\n- {name: a.b/e, devices: [{id: d}]}", "knows devices by id only"),
        ("- {name: a.b/cc, devices: [{id: d, nodes: [{path: /x}]}]}\n"
         "- {name: a.b/e, cdi_kind: a.b/cc, devices: [{id: e, nodes: [{path: /x}]}]}", "is already the kind of"),
    ],
)  # fmt: skip
def test_each_mistake_is_named(text: str, says: str) -> None:
    assert any(says in problem for problem in problems(text)), problems(text)


def test_an_id_that_two_devices_have_is_named_with_both_and_with_one_that_is_free() -> None:
    """Also of a device that several containers share, whose shares have other ids."""
    found = problems(
        """
        - {name: a.b/one, devices: [{id: d, nodes: [/dev/a]}, {id: three-d, nodes: [/dev/b]}]}
        - {name: a.b/two, replicas: 2, devices: [{id: d, nodes: [/dev/c]}, {id: d, nodes: [/dev/d]}]}
        - {name: a.b/three, devices: [{id: d, nodes: [/dev/e]}]}
        """
    )
    says = "'d' is already the id of resources[0] (a.b/one).devices[0] (d): choose another"
    why = "because the kubelet knows devices by id only"
    assert found == [
        f"resources[1] (a.b/two).devices[0] (d).id: {says}, e.g. 'two-d', {why}",
        f"resources[1] (a.b/two).devices[1] (d).id: {says}, {why}",
        f"resources[2] (a.b/three).devices[0] (d).id: {says}, {why}",
    ]


def test_what_was_refused_by_itself_is_not_said_to_stand_twice() -> None:
    found = problems("- {name: a.b/cc, devices: [{id: d, nodes: [{}, {path: ''}, {path: 5}]}]}")
    assert len(found) == 3, found
    assert not any("twice" in problem for problem in found)


def test_cdi_edits_may_repeat_a_variable() -> None:
    parse_resources(
        yaml.safe_load(
            """
            - name: a.b/cc
              container_edits: {env: [P=x]}
              devices: [{id: a, container_edits: {env: [N=a]}}, {id: b, container_edits: {env: [N=b]}}]
            - {name: a.b/dd, devices: [{id: c, container_edits: {env: [N=c]}}]}
            """
        )
    )


def test_what_needs_no_cdi_is_free_of_its_names() -> None:
    """System A's values are no legal CDI names; without nodes and edits an id is only the kubelet's."""
    (resource,) = parse_resources([{"name": "x/y", "devices": [{"id": "/node1/dev1/1"}], "env": {"Y": "{id}"}}])
    assert not resource.uses_cdi


class TestConfiguration:
    def read(self, **keys: Any) -> dict[str, Any]:
        return configuration_to_data(parse_configuration({"resources": [], **keys}))

    def test_defaults_are_not_written(self) -> None:
        assert self.read(log_level="info") == {"resources": []}
        assert self.read(log_level="debug") == {"log_level": "debug", "resources": []}

    @pytest.mark.parametrize(
        ("raw", "says"),
        [
            (None, "configuration: must be a mapping"),
            ({}, "resources: is missing"),
            ({"resources": [], "log_level": "loud"}, "log_level: must be one of debug, info, warning, error"),
            (
                {"resources": [], "kubelet_device_plugin_dir": "x"},
                "kubelet_device_plugin_dir: must be an absolute path",
            ),
            (
                {"resources": [], "kubelet_device_plugin_dir": "/" + "d" * 63},
                "kubelet_device_plugin_dir: must have at most",
            ),
            ({"resources": [], "log_levle": "info"}, "log_levle: is not a known key"),
            ({"resources": [], "recovery_delay": 86401}, "recovery_delay: must be at most 86400, not 86401"),
            ({"resources": [], "kubelet_root_dir": "/a b/%h"}, "kubelet_root_dir: must not contain ' ', '%'"),
            ({"resources": [], "kubelet_device_plugin_dir": "/a:b"}, "device_plugin_dir: must not contain ':'"),
            ({"resources": [], "dynamic_cdi_dir": '/a"b'}, "dynamic_cdi_dir: must not contain '\"'"),
            (
                {"resources": [], "dynamic_cdi_dir": "/etc/cdi"},
                "dynamic_cdi_dir: belongs to the role, whose specs the plugin",
            ),
        ],
    )
    def test_mistakes(self, raw: Any, says: str) -> None:
        with pytest.raises(DeclarationError, match=says):
            parse_configuration(raw)

    def test_the_role_s_folder_is_the_plugin_s_where_the_role_writes_none(self) -> None:
        own = {"dynamic_cdi_dir": "/etc/cdi", "cdi_owner": "plugin"}
        assert self.read(**own) == {"resources": [], **own}


#: One of each type that YAML knows.
ANYTHING = [None, True, 7, -1, 2**40, 1.5, "", "text", [], [None], [[]], ["x"], {}, {"x": None}, {1: 2}, [{}]]


def places(value: Any) -> Iterator[list[Any]]:
    """The path of every value inside ``value``."""
    yield []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        for place in places(inner):
            yield [key, *place]


def test_anything_anywhere_is_read_or_refused_and_never_a_crash() -> None:
    whole = yaml.safe_load(EVERYTHING)
    refused = 0
    for place in places(whole):
        for wrong in ANYTHING:
            raw = copy.deepcopy(whole)
            target = raw
            for key in place[:-1]:
                target = target[key]
            if place:
                target[place[-1]] = wrong
            else:
                raw = wrong
            try:
                resources = parse_resources(raw)
            except DeclarationError as error:
                refused += bool(error.problems)
            else:
                assert parse_resources(resources_to_data(resources)) == resources
    assert refused > 500


NAMED = """
- name: example.com/dev
  devices: [{id: a, nodes: [{path: /dev/a, uid: root, gid: 44}, {path: /dev/b, gid: vboxusers$}]}]
  discover: {paths: [/dev/x*], gid: dialout}
"""


def test_users_and_groups_may_be_names_in_a_declaration_but_not_in_the_plugins_configuration() -> None:
    """In a pod, the plugin has other users and groups than its node."""
    raw = yaml.safe_load(NAMED)
    assert resources_to_data(parse_resources(raw)) == raw
    with pytest.raises(DeclarationError) as caught:
        parse_configuration({"resources": raw})
    why = "must be a number in the plugin's configuration, because only the roles look names up"
    assert [str(problem) for problem in caught.value.problems] == [
        f"resources[0] (example.com/dev).{field}: {why}: 'getent {entry}' on the node prints the number"
        for field, entry in (
            ("devices[0] (a).nodes[0].uid", "passwd root"),
            ("devices[0] (a).nodes[1].gid", "group vboxusers$"),
            ("discover.gid", "group dialout"),
        )
    ]


@pytest.mark.parametrize(
    ("gid", "says"),
    [
        (
            "'44'",
            "must be a number or a name, not '44': write the number without quotes (in an expression, add '| int')",
        ),
        ("a b", "must be a number or a name, not 'a b': use letters, digits, '_', '-' and '.'"),
        ("''", "must be a number or a name, not '': use letters, digits, '_', '-' and '.'"),
        ("true", "must be a number or a name, not true"),
        ("-1", "must be at least 0, not -1"),
        ("[44]", "must be a number or a name, not a list"),
    ],
)
def test_a_group_is_a_number_or_a_name(gid: str, says: str) -> None:
    found = problems(f"[{{name: example.com/dev, devices: [{{id: a, nodes: [{{path: /dev/a, gid: {gid}}}]}}]}}]")
    assert found == [f"resources[0] (example.com/dev).devices[0] (a).nodes[0].gid: {says}"]


@pytest.mark.parametrize(
    ("of_runtime", "checked"),
    [
        (["/etc/cdi"], ("/etc/cdi", "/var/run/cdi")),
        # Added again, the directory would get the highest precedence.
        (["/var/run/cdi", "/etc/cdi"], ("/var/run/cdi", "/etc/cdi")),
        (["/run/cdi", "/etc/cdi"], ("/run/cdi", "/etc/cdi")),
        ([], ()),
    ],
)
def test_the_plugin_s_specs_keep_the_place_that_the_runtime_gives_them(
    of_runtime: list[str], checked: tuple[str, ...]
) -> None:
    assert parse_configuration({"resources": [], "cdi_spec_dirs": of_runtime}).checked_spec_dirs == checked


@pytest.mark.parametrize("wrong", [None, 3, {}, ["x"]])
def test_a_spec_directory_that_is_no_text_is_refused_with_its_place(wrong: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_configuration({"resources": [], "cdi_spec_dirs": ["/etc/cdi", wrong]})
    assert [problem.where for problem in caught.value.problems] == ["cdi_spec_dirs[1]"]


def test_text_that_utf_8_cannot_encode_is_refused_with_its_place() -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_configuration(
            {
                "kubelet_device_plugin_dir": "/\ud800",
                "cdi_spec_dirs": ["/\udfff"],
                "resources": [{"name": "example.com/a", "env": {"A\ud800": "x", "B": "\udc80", "C": "x"}}],
            }
        )
    assert [str(problem) for problem in caught.value.problems] == [
        "kubelet_device_plugin_dir: contains a NUL character or half of a surrogate pair: remove it",
        "resources[0] (example.com/a).env: the key 'A\\ud800' contains a NUL character or half of a "
        "surrogate pair: remove it",
        "resources[0] (example.com/a).env.B: contains a NUL character or half of a surrogate pair: remove it",
        "cdi_spec_dirs[0]: contains a NUL character or half of a surrogate pair: remove it",
    ]


@pytest.mark.parametrize("edits", [{"env": [None]}, {"hooks": [{"env": [None], "args": [None]}]}, {"mounts": [None]}])
def test_edits_of_the_wrong_type_are_refused_with_their_place(edits: Any) -> None:
    for item in ({"container_edits": edits}, {"devices": [{"id": "a", "container_edits": edits}]}):
        with pytest.raises(DeclarationError) as caught:
            parse_resources([{"name": "example.com/a", "injection": "device_nodes", **item}])
        assert any("[0]: must be " in str(problem) for problem in caught.value.problems)
