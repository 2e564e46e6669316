"""CDI rendering: content, the version that it needs, and what a runtime refuses."""

import json
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml

from node_device_plugin.declaration import cdi, parse_resources

from ..cdi import specs
from .test_parse import EVERYTHING


def spec(text: str) -> Any:
    (rendered,) = cdi.render_specs(parse_resources(yaml.safe_load(text))).values()
    return rendered


def test_every_edit_is_rendered_in_cdis_own_keys() -> None:
    assert cdi.render_specs(parse_resources(yaml.safe_load(EVERYTHING))) == {
        "node-device-plugin_vendor.com_class.json": {
            "cdiVersion": "0.7.0",
            "kind": "vendor.com/class",
            "devices": [
                {
                    "name": "dev0",
                    "containerEdits": {
                        "env": ["D=e"],
                        "deviceNodes": [
                            {
                                "path": "/dev/a",
                                "hostPath": "/dev/b",
                                "permissions": "rwm",
                                "fileMode": 0o660,
                                "uid": 0,
                                "gid": 44,
                            },
                            {"path": "/dev/c", "permissions": "rw"},
                        ],
                    },
                },
                {"name": "dev1", "containerEdits": {"deviceNodes": [{"path": "/dev/d", "permissions": "rw"}]}},
            ],
            "containerEdits": {
                "env": ["A=b", "C="],
                "hooks": [
                    {
                        "hookName": "createContainer",
                        "path": "/bin/true",
                        "args": ["true"],
                        "env": ["X=y"],
                        "timeout": 3,
                    }
                ],
                "mounts": [
                    {"hostPath": "tmpfs", "containerPath": "/t", "type": "tmpfs", "options": ["nosuid"]},
                    {"hostPath": "/x", "containerPath": "/y", "options": ["rbind"]},
                ],
                "additionalGids": [44],
            },
        }
    }


def test_a_device_without_edits_of_its_own_repeats_what_of_the_kind_s_may_be_given_twice() -> None:
    """CDI refuses a device whose edits are empty. A hook would run once for each device of a container."""
    rendered = spec(
        "- {name: a.bc/de, container_edits: {env: [A=b], hooks: [{name: prestart, path: /h}]}, "
        "devices: [{id: x}, {id: y, container_edits: {env: [C=d]}}]}"
    )
    assert rendered["devices"] == [
        {"name": "x", "containerEdits": {"env": ["A=b"]}},
        {"name": "y", "containerEdits": {"env": ["C=d"]}},
    ]
    hooks = [{"hookName": "prestart", "path": "/h"}]
    assert rendered["containerEdits"] == {"env": ["A=b"], "hooks": hooks}
    only_hooks = spec(
        "- {name: a.bc/de, container_edits: {hooks: [{name: prestart, path: /h}]}, "
        "devices: [{id: x}, {id: y, container_edits: {env: [C=d]}}]}"
    )
    assert only_hooks["devices"] == [
        {"name": "x", "containerEdits": {"hooks": hooks}},
        {"name": "y", "containerEdits": {"env": ["C=d"], "hooks": hooks}},
    ]
    assert "containerEdits" not in only_hooks


def test_nothing_to_edit_needs_no_spec() -> None:
    assert cdi.render_specs(parse_resources([{"name": "a.b/c", "devices": [{"id": "x"}], "env": {"A": "b"}}])) == {}
    assert cdi.render_specs(parse_resources([{"name": "a.b/c", "container_edits": {"env": ["A=b"]}}])) == {}


@pytest.mark.parametrize(
    ("device", "version"),
    [
        ("{id: x, nodes: [{path: /dev/x}]}", "0.3.0"),
        ("{id: x, container_edits: {mounts: [{host_path: tmpfs, container_path: /x, type: tmpfs}]}}", "0.4.0"),
        ("{id: x, nodes: [{path: /dev/x, host_path: /dev/y}]}", "0.5.0"),
        ("{id: 0x, nodes: [{path: /dev/x}]}", "0.5.0"),
        ("{id: x, container_edits: {additional_gids: [5]}}", "0.7.0"),
    ],
)
def test_the_lowest_version_that_the_content_needs(device: str, version: str) -> None:
    assert spec("- {name: ven.dor/class, devices: [%s]}" % device)["cdiVersion"] == version


def test_a_dot_in_the_class_needs_0_6() -> None:
    assert spec("- {name: ven.dor/cl.ass, devices: [{id: x, nodes: [{path: /dev/x}]}]}")["cdiVersion"] == "0.6.0"


@pytest.mark.parametrize(
    ("containerd", "accepted"),
    [
        ("1.6.20~ds1", None),
        ("1.7.1", None),
        ("1.7.2", "0.5.0"),
        ("v1.7.11", "0.5.0"),
        ("1.7.12", "0.6.0"),
        ("1.7.15", "0.6.0"),
        ("1.7.16", "0.7.0"),
        ("1.7.24~ds1-6+deb13u1", "0.7.0"),
        ("1.7.27", "0.8.0"),
        ("2.0.4", "0.8.0"),
        ("2.0.5", "1.0.0"),
        ("2.1.9+ds1", "1.0.0"),
        ("2.2.0", "1.0.0"),
        ("2.2.1", "1.1.0"),
        ("v2.3.0-rc.1", "1.1.0"),
    ],
)
def test_what_each_containerd_accepts(containerd: str, accepted: Any) -> None:
    assert cdi.accepted_version(containerd) == accepted


def test_what_a_runtime_refuses_is_named() -> None:
    rendered = spec("- {name: ven.dor/class, devices: [{id: x, container_edits: {additional_gids: [5]}}]}")
    assert cdi.refused_features(rendered, "0.7.0") == []
    (feature,) = cdi.refused_features(rendered, "0.6.0")
    assert feature == ("0.7.0", "additional gids", "device x")
    with_empty = {**rendered, "containerEdits": {"netDevices": []}}
    assert cdi.minimum_version(with_empty) == "0.7.0"
    assert cdi.refused_features(with_empty, "1.0.0") == [("1.1.0", "network devices", "containerEdits")]


def test_the_same_content_is_the_same_bytes() -> None:
    resources = parse_resources(yaml.safe_load(EVERYTHING))
    first, second = (cdi.serialise(next(iter(cdi.render_specs(resources).values()))) for _ in range(2))
    assert first == second
    assert first.endswith("}\n")


def test_characters_that_are_none_of_yaml_are_escaped() -> None:
    """Runtimes read a spec as YAML. Raw, these characters cost all devices of the file, or become a space."""
    (resource,) = parse_resources(
        [
            {
                "name": "a.com/bb",
                "devices": [{"id": "d", "container_edits": {"env": ["A=\x7f\x85\x9f\u2028\ufeff\uffffü😀"]}}],
            }
        ]
    )
    spec = cdi.render_spec(resource)
    assert spec is not None
    assert '"A=\\u007f\\u0085\\u009f\\u2028\\ufeff\\uffffü😀"' in cdi.serialise(spec)
    assert json.loads(cdi.serialise(spec)) == spec


@pytest.mark.parametrize(
    ("mount", "options"),
    [
        ("", ["rbind"]),
        (", type: bind", ["rbind"]),
        (", options: [ro, nosuid]", ["rbind", "ro", "nosuid"]),
        (", options: [ro, bind]", ["ro", "bind"]),
        (", type: bind, options: [rbind, ro]", ["rbind", "ro"]),
        (", type: none, options: [ro]", ["rbind", "ro"]),
        (", type: none, options: [bind]", ["bind"]),
        (", type: tmpfs", None),
        (", type: tmpfs, options: [nosuid]", ["nosuid"]),
    ],
)
def test_a_bind_mount_says_so(mount: str, options: Optional[list[str]]) -> None:
    """runc takes a mount that names no file system and has no such option for a file system without a name."""
    text = "{id: x, container_edits: {mounts: [{host_path: /opt/x, container_path: /x%s}]}}" % mount
    (rendered,) = spec("- {name: a.bb/cc, devices: [%s]}" % text)["devices"][0]["containerEdits"]["mounts"]
    assert rendered.get("options") == options


def test_each_kind_has_a_file_of_its_own_that_can_be_written(tmp_path: Path) -> None:
    longest = [".".join(["d" * 60] * 4), "n" * 63]
    kinds = ["ven.dor/class", "ab_cd/ef", "ab/cd_ef", "/".join(longest), "/".join([*longest[:1], "n" * 62 + "m"])]
    names = [cdi.file_name(kind) for kind in kinds]
    assert names[0] == "node-device-plugin_ven.dor_class.json"
    assert len(set(names)) == len(kinds)
    resources = parse_resources(
        [
            {
                "name": kind,
                "devices": [{"id": "d%d" % n, "nodes": [{"path": "/dev/null"}]}],
                "discover": {"paths": ["/x"]},
            }
            for n, kind in enumerate(kinds)
            if "_" not in kind.partition("/")[0]
        ]
    )
    assert specs.write(resources, str(tmp_path)) == {}
    assert len(list(tmp_path.iterdir())) == len(resources)
