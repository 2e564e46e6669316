"""The declaration as Ansible's side reads it: united from variables, with problems placed in them."""

from __future__ import annotations

import json

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration

from node_device_plugin.declaration import cdi, parse_resources, schema

SERIAL = {
    "name": "devices.example.com/serial",
    "devices": [{"id": "a", "nodes": [{"path": "/dev/ttyA", "host_path": "/dev/ttyUSB0"}]}],
    "env": {"PORT_{index}": "{path}"},
}
KVM = {
    "name": "devices.example.com/kvm",
    "devices": [{"id": "kvm0", "nodes": [{"path": "/dev/kvm"}], "required": False}],
}


def read(variables, settings=None):
    return declaration.read(variables, template, settings)


def template(value):
    """As Ansible's, as far as it matters here: whatever holds an expression that fails, fails."""
    if "{{" in json.dumps(value):
        raise ValueError("'x' is undefined")
    return value


def problems_of(variables, settings=None):
    with pytest.raises(declaration.DeclarationProblems) as caught:
        read(variables, settings)
    return caught.value.lines


def test_variables_unite():
    data = read({"node_devices_resources": [SERIAL], "node_devices_resources_b": [KVM], "other": "x"}).as_data()
    assert [resource["name"] for resource in data["resources"]] == [SERIAL["name"], KVM["name"]]
    assert data["configuration"] == {"resources": data["resources"]}


def test_no_variable_is_an_empty_declaration():
    data = read({"other": 1}).as_data()
    assert data == {
        "resources": [],
        "configuration": {"resources": []},
        "cdi_specs": {},
        "accounts": {},
        "foreign_kinds": [],
        "capacities": {},
        "needs_cdi": True,
        "device_paths": {},
        "host_paths": {},
        "host_directories": ["/etc/cdi"],
        "needs_uevents": False,
        "kubelet_device_plugin_dir": "/var/lib/kubelet/device-plugins",
        "http_address": "127.0.0.1:9819",
        "dra": {},
    }


def test_the_dra_driver_of_a_node_is_told_only_where_a_resource_uses_it():
    settings = {"dra": {"driver": "d.example.com"}}
    own = read({"node_devices_resources": [{**SERIAL, "api": "dra"}], "node_devices_settings": settings})
    driver = {"name": "d.example.com", "node": "w1", "kubeconfig": "/etc/kubernetes/kubelet.conf"}
    data = own.with_node("w1").as_data()
    assert data["dra"] == driver
    assert data["configuration"]["dra"] == {"driver": "d.example.com", "node": "w1"}
    assert read({"node_devices_resources": [SERIAL], "node_devices_settings": settings}).as_data()["dra"] == {}


def test_same_rendering_as_the_plugin():
    data = read({"node_devices_resources": [SERIAL, KVM]}).as_data()
    direct = cdi.render_specs(parse_resources([SERIAL, KVM]))
    assert data["cdi_specs"] == direct
    assert data["cdi_specs"]["node-device-plugin_devices.example.com_kvm.json"]["kind"] == KVM["name"]


def test_device_paths_are_the_hosts_own():
    data = read({"node_devices_resources": [SERIAL, KVM]}).as_data()
    assert data["device_paths"] == {
        "/dev/ttyUSB0": {"device": "devices.example.com/serial a", "required": True, "exclusive": True},
        "/dev/kvm": {"device": "devices.example.com/kvm kvm0", "required": False, "exclusive": True},
    }


MOUNTS = [
    {
        "name": "devices.example.com/cam",
        "container_edits": {
            "mounts": ["/etc/common:/etc/common:ro", {"host_path": "tmpfs", "container_path": "/t", "type": "tmpfs"}],
            "hooks": [{"name": "createContainer", "path": "/usr/bin/hook"}],
        },
        "devices": [
            {"id": "a", "required": False, "nodes": ["/dev/a"], "container_edits": {"mounts": ["/etc/nope:/x"]}},
            {"id": "b", "nodes": ["/dev/b"], "container_edits": {"mounts": ["/etc/b:/b", "/etc/nope:/x"]}},
        ],
    },
    {
        "name": "devices.example.com/one",
        "devices": [{"id": "c", "required": False, "container_edits": {"mounts": ["/c:/c"]}}],
    },
    {
        "name": "devices.example.com/found",
        "discover": {"paths": ["/dev/x*"]},
        "devices": [{"id": "d", "required": False, "container_edits": {"mounts": ["/d:/d"]}}],
        "container_edits": {"mounts": ["/etc/common:/etc/common:ro"]},
    },
    {
        "name": "devices.example.com/direct",
        "injection": "device_nodes",
        "devices": [{"id": "e", "nodes": ["/dev/e"], "container_edits": {"mounts": ["/made-by-the-runtime:/e"]}}],
    },
]


def test_the_host_paths_of_mounts_and_hooks_have_their_field_and_device():
    found = read({"node_devices_resources": MOUNTS}).as_data()["host_paths"]
    cam, edits = "devices.example.com/cam", "container_edits"
    common = {"who": f"a device of {cam}", "required": True}
    assert found == {
        "/etc/common": {
            **common,
            "field": f"{cam}.{edits}.mounts[0].host_path",
            "all_of": [cam, "devices.example.com/found"],
        },
        "/usr/bin/hook": {**common, "field": f"{cam}.{edits}.hooks[0].path", "all_of": [cam]},
        "/etc/nope": {
            "who": f"device {cam} b",
            "required": True,
            "field": f"{cam}.devices (b).{edits}.mounts[1].host_path",
            "all_of": [cam],
        },
        "/etc/b": {
            "who": f"device {cam} b",
            "required": True,
            "field": f"{cam}.devices (b).{edits}.mounts[0].host_path",
            "all_of": [],
        },
        "/c": {
            "who": "device devices.example.com/one c",
            "required": False,
            "field": f"devices.example.com/one.devices (c).{edits}.mounts[0].host_path",
            "all_of": ["devices.example.com/one"],
        },
        "/d": {
            "who": "device devices.example.com/found d",
            "required": False,
            "field": f"devices.example.com/found.devices (d).{edits}.mounts[0].host_path",
            "all_of": [],
        },
    }


def test_short_forms_become_the_long_form():
    short = {"name": "devices.example.com/serial", "devices": ["/dev/ttyS0"]}
    data = read({"node_devices_resources": [short]}).as_data()
    long = {"id": "ttyS0", "nodes": [{"path": "/dev/ttyS0"}]}
    assert data["resources"] == data["configuration"]["resources"] == [{**short, "devices": [long]}]


NAMED = {
    "name": "devices.example.com/named",
    "devices": [{"id": "a", "nodes": [{"path": "/dev/a", "uid": "games", "gid": "dialout"}, "/dev/b"]}],
    "discover": {"paths": ["/dev/ttyUSB*"], "gid": "dialout"},
}
STATIC = {"name": "devices.example.com/fixed", "devices": [{"id": "c", "nodes": [{"path": "/dev/c", "gid": "video"}]}]}


def test_names_of_users_and_groups_become_the_nodes_numbers_everywhere():
    data = read({"node_devices_resources": [NAMED, STATIC, {"name": "b.io/x", "capacity": 2}]}).as_data()
    data["cdi_specs"]["template.json"] = {}
    assert data["accounts"] == {"users": ["games"], "groups": ["dialout", "video"]}
    found = {"users": {"games": 5}, "groups": {"dialout": 20, "video": 44}}
    numbered, problems = declaration.with_numbers(data, found)
    text = json.dumps(NAMED).replace('"games"', "5").replace('"dialout"', "20")
    fixed = json.loads(json.dumps(STATIC).replace('"video"', "44"))
    direct = read({"node_devices_resources": [json.loads(text), fixed, {"name": "b.io/x", "capacity": 2}]}).as_data()
    assert problems == []
    assert numbered == {**direct, "cdi_specs": {**direct["cdi_specs"], "template.json": {}}}
    assert declaration.with_numbers(numbered, {}) == (numbered, [])


def test_a_name_that_the_node_does_not_know_is_a_problem_of_its_field():
    data = read({"node_devices_resources": [NAMED]}).as_data()
    assert declaration.with_numbers(data, {"users": {"games": 5}, "groups": {"dialout": None}}) == (
        data,
        [
            "devices.example.com/named.discover.gid: the node has no group 'dialout': create the group there, or give "
            "its number",
            "devices.example.com/named.devices (a).nodes[0].gid: the node has no group 'dialout': create the group "
            "there, or give its number",
        ],
    )


def test_settings_become_the_plugins():
    data = read({"node_devices_resources": []}, {"log_level": "debug"}).as_data()
    assert data["configuration"] == {"log_level": "debug", "resources": []}


def test_all_problems_at_once_each_in_its_variable():
    lines = problems_of(
        {
            "node_devices_resources": [SERIAL],
            "node_devices_resources_group": [KVM, {**SERIAL, "devices": [], "colour": 1}],
            "node_devices_resources_host": [
                {"name": "example.com/x", "devices": [{"id": "d", "nodes": [{"path": "dev"}]}]}
            ],
            "node_devices_resources_map": {"name": "example.com/y"},
        },
        {"log_level": "loud"},
    )
    assert sorted(lines) == sorted(
        [
            "node_devices_resources_map: must be a list of resources, not a mapping",
            "node_devices_resources_group[1] (devices.example.com/serial).colour: is not a known key; known keys: "
            + ", ".join(sorted(schema.RESOURCE)),
            "node_devices_resources_host[0] (example.com/x).devices[0] (d).nodes[0].path: must be an absolute path "
            "without '.', '..', '//' or a trailing '/', not 'dev'",
            "node_devices_resources_host[0] (example.com/x).name: is also the CDI kind, but the CDI class 'x' "
            "has fewer than two characters, which crashes containerd's parser: choose a longer name; or set cdi_kind",
            "node_devices_resources_group[1] (devices.example.com/serial).name: is already declared as "
            "node_devices_resources[0] (devices.example.com/serial): remove or rename one",
            "node_devices_settings.log_level: must be one of debug, info, warning, error, not 'loud'",
        ]
    )


def test_capacities_stand_beside_the_plugins_resources_and_are_none_of_them():
    dongle = {"name": "example.com/dongle", "capacity": 4}
    data = read({"node_devices_resources": [dongle, KVM], "node_devices_resources_b": [{**dongle, "name": "b.io/x"}]})
    assert data.as_data()["capacities"] == {"example.com/dongle": 4, "b.io/x": 4}
    assert [resource["name"] for resource in data.as_data()["configuration"]["resources"]] == [KVM["name"]]


def test_problems_of_capacities_are_placed_in_their_variables():
    lines = problems_of(
        {
            "node_devices_resources": [
                KVM,
                {"name": KVM["name"], "capacity": 1},
                {"name": "a.io/b", "capacity": "4"},
                {"name": "a.io/c", "capacity": 7.5},
            ],
            "node_devices_resources_b": [
                {"name": "a.io/b", "capacity": None},
                {"name": "a.io/b", "capacity": 1},
                {"name": "nvidia", "capacity": -1, "replicas": 2},
                {"capacity": 2**63},
                {"name": ["x"], "capacity": 1},
            ],
        },
    )
    assert sorted(lines) == sorted(
        [
            "node_devices_resources[1] (devices.example.com/kvm).name: is already declared as "
            "node_devices_resources[0]: remove or rename one",
            "node_devices_resources[2] (a.io/b).capacity: must be a whole number, not the text '4' "
            "(write it without quotes; for an expression, add '| int')",
            "node_devices_resources[3] (a.io/c).capacity: must be a whole number, not 7.5 "
            "(for an expression, add '| int')",
            "node_devices_resources_b[0] (a.io/b).capacity: is empty, but must be a whole number",
            "node_devices_resources_b[0] (a.io/b).name: is already declared as "
            "node_devices_resources[2] (a.io/b): remove or rename one",
            "node_devices_resources_b[1] (a.io/b).name: is already declared as "
            "node_devices_resources[2] (a.io/b): remove or rename one",
            "node_devices_resources_b[2] (nvidia).capacity: must be at least 0, not -1",
            "node_devices_resources_b[2] (nvidia).replicas: cannot be combined with capacity, a count without "
            "devices: remove one of the two",
            "node_devices_resources_b[2] (nvidia).name: 'nvidia' is not an extended resource: use the form "
            "domain/name, with exactly one '/'",
            f"node_devices_resources_b[3].capacity: must be at most {(2**63 - 1) // 1000}, not {2**63}",
            "node_devices_resources_b[3].name: is missing",
            "node_devices_resources_b[4].name: must be text, not a list",
        ]
    )


def test_a_resource_that_contradicts_the_settings_is_placed_in_its_variable():
    found = {"name": "example.com/gpu", "discover": {"cdi": {"kind": "vendor.com/gpu"}}}
    assert problems_of(
        {"node_devices_resources": [KVM], "node_devices_resources_b": [found]}, {"cdi_spec_dirs": []}
    ) == [
        "node_devices_resources_b[0] (example.com/gpu).discover.cdi: looks in cdi_spec_dirs, which is empty: list the "
        "directories there"
    ]


@pytest.mark.parametrize("name", ["a.resources[0]", "node_resources[0]"])
def test_a_text_that_looks_like_a_place_stays(name):
    (line,) = problems_of({"node_devices_resources_b": [KVM, {"name": name}]})
    assert repr(name) in line


@pytest.mark.parametrize(("settings", "kind"), [("text", "the text 'text'"), ([], "a list"), (1, "1")])
def test_settings_that_are_no_mapping_are_one_problem(settings, kind):
    assert problems_of({"node_devices_resources": [KVM]}, settings) == [
        f"node_devices_settings: must be a mapping of the plugin's settings, not {kind}"
    ]


@pytest.mark.parametrize(
    "message", ["'ansible_memtotal_mb' is undefined", "object of type 'dict' has no attribute 'memtotal_mb'"]
)
def test_an_expression_over_facts_that_were_not_gathered(message):
    def failing(value):
        raise ValueError(message)

    with pytest.raises(declaration.DeclarationProblems) as caught:
        declaration.read({"node_devices_resources": "{{ x }}"}, failing)
    hint = "to gather facts, set node_devices_gather_facts: true"
    assert caught.value.lines == [f"node_devices_resources: {message}; {hint}"]


def test_an_expression_that_fails_is_named_by_its_field_and_hides_nothing_else():
    failing = {**SERIAL, "devices": [{"id": "{{ x }}", "nodes": [{"path": "{{ x }}"}]}], "replicas": 0}
    lines = problems_of(
        {
            "node_devices_resources_a": [failing, {"name": "{{ x }}", "capacity": "{{ x }}"}, {**KVM, "replicas": 0}],
            "node_devices_resources_b": "{{ x }}",
            "node_devices_resources_c": {"{{ x }}": 1},
        }
    )
    assert sorted(lines) == sorted(
        [
            f"node_devices_resources_a[0] ({SERIAL['name']}).devices[0].id: 'x' is undefined",
            f"node_devices_resources_a[0] ({SERIAL['name']}).devices[0].nodes[0].path: 'x' is undefined",
            "node_devices_resources_a[1].name: 'x' is undefined",
            "node_devices_resources_a[1].capacity: 'x' is undefined",
            f"node_devices_resources_a[2] ({KVM['name']}).replicas: must be at least 1, not 0",
            "node_devices_resources_b: 'x' is undefined",
            "node_devices_resources_c: 'x' is undefined",
        ]
    )


def test_a_list_that_holds_itself_is_one_problem():
    circle = [KVM]
    circle.append(circle)

    def deep(value):
        json.dumps(value)
        return value

    with pytest.raises(declaration.DeclarationProblems) as caught:
        declaration.read({"node_devices_resources": circle}, deep)
    assert caught.value.lines
    assert all("Circular reference" in line for line in caught.value.lines)


@pytest.mark.parametrize(
    ("injections", "needs"), [([], True), (["cdi"], True), (["device_nodes"], False), (["device_nodes", "cdi"], True)]
)
def test_cdi_is_needed_unless_every_resource_does_without(injections, needs):
    resources = [{"name": f"example.com/dev{n}", "injection": how} for n, how in enumerate(injections)]
    assert read({"node_devices_resources": resources}).as_data()["needs_cdi"] is needs


def test_what_would_be_passed_over_is_said():
    assert problems_of({"node_devices_resources_empty": None}) == [
        "node_devices_resources_empty: must be a list of resources, not nothing (write [] for no resources)"
    ]
    assert problems_of({"node_devices_resources": [KVM]}, {"resources": [SERIAL]}) == [
        "node_devices_settings.resources: must not be set: declare resources in node_devices_resources or in "
        "variables whose names begin with it"
    ]


def of_profile(*resources):
    read = declaration.read({"node_devices_resources": list(resources)}, template, of_profile=True)
    return {resource.name: resource for resource in read.configuration.resources}


def test_the_devices_of_a_profile_are_optional_and_need_no_cdi():
    short = {"name": "a.example/short", "devices": ["/dev/ttyS0", {"id": "b", "nodes": ["/dev/b"], "required": True}]}
    by_cdi = {**KVM, "name": "a.example/cdi", "injection": "cdi"}
    found = of_profile(short, by_cdi, {"name": "a.example/found", "discover": {"paths": ["/dev/x*"]}})
    devices = found["a.example/short"].devices
    assert [(device.id, device.required) for device in devices] == [("ttyS0", False), ("b", True)]
    assert {name[10:]: resource.injection for name, resource in found.items()} == {
        "short": "device_nodes",
        "cdi": "cdi",
        "found": "device_nodes",
    }
    # A host's devices stay required.
    (resource,) = read({"node_devices_resources": [short]}).configuration.resources
    assert [device.required for device in resource.devices] == [True, True]
    assert resource.injection == "cdi"


@pytest.mark.parametrize(
    ("resource", "says"),
    [
        ("x", "must be a mapping, not text"),
        ({"name": "a.example/b", "devices": "x"}, ".devices: must be a list, not text"),
        ({"name": "a.example/b", "devices": ["x"]}, ".devices[0]: must be a mapping or its short form, not 'x'"),
        ({"name": "a.example/b", "devices": [3]}, ".devices[0]: must be a mapping, not a number"),
        (
            {"name": "a.example/b", "devices": [{"id": "a", "cdi_devices": ["nvidia.com/gpu=0"]}]},
            ".cdi_devices: works only with CDI: remove it, or set injection: cdi instead of device_nodes",
        ),
    ],
)
def test_a_wrong_resource_of_a_profile_is_said_as_that_of_a_host(resource, says):
    with pytest.raises(declaration.DeclarationProblems) as caught:
        of_profile(resource)
    assert any(says in line for line in caught.value.lines), caught.value.lines
