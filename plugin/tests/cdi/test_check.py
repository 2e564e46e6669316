"""cdi check: good and bad specs, by themselves and beside each other."""

import copy
import json
import os
import threading
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.cdi.directories import check_directories, check_file
from node_device_plugin.cdi.resolution import Resolution
from node_device_plugin.cdi.spec import VERSIONS, spec_problems
from node_device_plugin.cli.main import main
from node_device_plugin.declaration import cdi, parse_resources
from node_device_plugin.devices.health.cdi_names import CdiNames
from node_device_plugin.diagnostics import cdi_specs
from node_device_plugin.diagnostics.cdi_specs import Report

SMALL: dict[str, Any] = {
    "cdiVersion": "0.3.0",
    "kind": "vendor.com/class",
    "devices": [{"name": "d0", "containerEdits": {"env": ["A=b"]}}],
}
FULL: dict[str, Any] = {
    "cdiVersion": "1.1.0",
    "kind": "vendor.com/class.x",
    "annotations": {"a": "b"},
    "devices": [
        {
            "name": "0:d",
            "annotations": {"a": "b"},
            "containerEdits": {
                "env": ["A=b=c", "E="],
                "deviceNodes": [
                    {
                        "path": "/dev/x",
                        "hostPath": "/dev/y",
                        "type": "c",
                        "major": 1,
                        "minor": 0,
                        "fileMode": 432,
                        "permissions": "rwm",
                        "uid": 0,
                        "gid": 44,
                    }
                ],
                "netDevices": [{"hostInterfaceName": "eth1", "name": "net0"}],
                "hooks": [{"hookName": "prestart", "path": "/x", "args": ["x"], "env": ["A=b"], "timeout": 1}],
                "mounts": [{"hostPath": "/x", "containerPath": "/y", "options": ["ro"], "type": "bind"}],
                "intelRdt": {"closID": "x", "l3CacheSchema": "y", "memBwSchema": "z"},
                "additionalGids": [44],
            },
        }
    ],
    "containerEdits": {"env": ["C=d"]},
}


def said(spec: Any, accepted: Optional[str] = None) -> list[str]:
    return [str(problem) for problem in spec_problems(spec, accepted)]


def test_good_specs() -> None:
    assert said(SMALL, "0.5.0") == []
    assert said(FULL) == []


def test_what_this_project_renders_is_good() -> None:
    (resource,) = parse_resources(
        [
            {
                "name": "example.com/dev",
                "container_edits": {
                    "env": ["A=b"],
                    "mounts": [{"host_path": "x", "container_path": "/x", "type": "tmpfs"}],
                },
                "devices": [
                    {"id": "d0", "nodes": [{"path": "/dev/a", "host_path": "/dev/b", "gid": 44, "mode": "0660"}]},
                    {"id": "1d", "container_edits": {"additional_gids": [7]}},
                ],
            }
        ]
    )
    assert said(cdi.render_spec(resource), "0.7.0") == []


def changed(path: str, value: Any, spec: dict[str, Any] = FULL) -> dict[str, Any]:
    """A copy with one field set, or taken away (None)."""
    result = copy.deepcopy(spec)
    at: Any = result
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return result


EDITS = "devices.0.containerEdits."


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("kind", None, "kind: is missing"),
        (
            "kind",
            "v/class",
            "kind: the CDI vendor 'v' has fewer than two characters, which crashes containerd's parser",
        ),
        (
            "kind",
            "vendor/c",
            "kind: the CDI class 'c' has fewer than two characters, which crashes containerd's parser",
        ),
        ("kind", "novendor", "kind: 'novendor' is not a CDI kind"),
        ("kind", 5, "kind: must be text, not 5"),
        ("cdiVersion", None, "cdiVersion: is missing"),
        ("cdiVersion", "0.9.0", "cdiVersion: '0.9.0' is not a CDI version"),
        ("cdiVersion", 0.5, "cdiVersion: must be text, not 0.5"),
        ("cdiVersion", "1.0.0", "cdiVersion: is 1.0.0, but must be at least 1.1.0 for network devices (device 0:d)"),
        ("devices", None, "devices: is missing"),
        ("devices", [], "devices: is empty"),
        ("devices", {}, "devices: must be a list"),
        ("devices", ["d0"], "devices[0]: must be a mapping"),
        ("colour", "red", "colour: is not a field of CDI; known fields: annotations, cdiVersion"),
        ("annotations", {"a": 1}, "annotations: must contain only text"),
        ("devices.0.name", "/dev/x", "devices[0] (/dev/x).name: '/dev/x' is not a valid CDI device name"),
        ("devices.0.name", "", "devices[0].name: is empty"),
        ("devices.0.containerEdits", {}, "devices[0] (0:d).containerEdits: is empty"),
        ("devices.0.containerEdits", None, "devices[0].containerEdits: is missing"),
        ("devices.0.nodes", [], "devices[0].nodes: is not a field of CDI"),
        (EDITS + "env", ["A"], "devices[0] (0:d).containerEdits.env[0]: must have the form NAME=value"),
        (EDITS + "env", ["=b"], "devices[0] (0:d).containerEdits.env[0]: must have the form NAME=value"),
        (EDITS + "env", [1], "devices[0].containerEdits.env[0]: must be text, not 1"),
        (EDITS + "deviceNodes.0.path", None, "devices[0].containerEdits.deviceNodes[0].path: is missing"),
        (EDITS + "deviceNodes.0.type", "x", "devices[0].containerEdits.deviceNodes[0].type: must be one of b, c, u, p"),
        (EDITS + "deviceNodes.0.uid", -1, "devices[0].containerEdits.deviceNodes[0].uid: must be a number, 0 or more"),
        (
            EDITS + "deviceNodes.0.uid",
            True,
            "devices[0].containerEdits.deviceNodes[0].uid: must be a number, 0 or more",
        ),
        (EDITS + "deviceNodes.0.fileMode", "0660", "deviceNodes[0].fileMode: must be a number, 0 or more, not '0660'"),
        (
            EDITS + "deviceNodes.0.permissions",
            "rx",
            "deviceNodes[0].permissions: must contain only r, w and m, not 'rx'",
        ),
        (EDITS + "hooks.0.hookName", "later", "hooks[0].hookName: must be one of prestart, createRuntime"),
        (EDITS + "deviceNodes.0.permissions", "none", "must contain only r, w and m, not 'none'"),
        (EDITS + "deviceNodes.0.major", -1, "deviceNodes[0].major: must be a number, 0 or more, not -1"),
        (EDITS + "hooks.0.timeout", -1, "hooks[0].timeout: must be a number, 0 or more, not -1"),
        (EDITS + "hooks.0.args", [None], "hooks[0].args[0]: must be text, not None"),
        (EDITS + "hooks.0.env", ["x"], "hooks[0].env[0]: must have the form NAME=value"),
        (EDITS + "mounts.0.containerPath", None, "mounts[0].containerPath: is missing"),
        (EDITS + "mounts.0.host_path", "/x", "mounts[0].host_path: is not a field of CDI"),
        (EDITS + "deviceNodes.0.gid", 2**32, "deviceNodes[0].gid: must be at most 4294967295, not 4294967296"),
        (EDITS + "additionalGids", [2**32], "additionalGids[0]: must be at most 4294967295, not 4294967296"),
        (EDITS + "intelRdt.closId", "x", "intelRdt.closId: is not a field of CDI"),
        (EDITS + "intelRdt.closID", "a/b", "intelRdt.closID: must be '/' or the name of one directory, not 'a/b'"),
        (
            EDITS + "netDevices",
            [{"hostInterfaceName": "eth1", "name": "a"}, {"hostInterfaceName": "eth1", "name": "b"}],
            "netDevices[1].hostInterfaceName: is already used by netDevices[0]",
        ),
        (
            EDITS + "netDevices",
            [{"hostInterfaceName": "eth1", "name": "a"}, {"hostInterfaceName": "eth2", "name": "a"}],
            "netDevices[1].name: is already used by netDevices[0]",
        ),
        ("containerEdits.env", "A=b", "containerEdits.env: must be a list"),
    ],
)
def test_bad_specs(path: str, value: Any, says: str) -> None:
    (problem,) = said(changed(path, value))
    assert says in problem


def test_intel_rdt_s_versions() -> None:
    def needs(rdt: dict[str, Any]) -> list[str]:
        return said(changed("devices.0.containerEdits", {"intelRdt": rdt}, {**SMALL, "cdiVersion": "0.6.0"}))

    assert needs({}) == ["cdiVersion: is 0.6.0, but must be at least 0.7.0 for Intel RDT (device d0)"]
    assert needs({"closID": "/"}) == needs({})
    assert needs({"schemata": ["L3:0=f"]})[1:] == [
        "cdiVersion: is 0.6.0, but must be at least 1.1.0 for Intel RDT's schemata (device d0)"
    ]
    assert needs({"enableMonitoring": True})[1:] == [
        "cdiVersion: is 0.6.0, but must be at least 1.1.0 for Intel RDT's enableMonitoring (device d0)"
    ]
    assert needs({"schemata": []})[1:] == needs({"schemata": ["L3:0=f"]})[1:]
    assert needs({"enableMonitoring": False}) == needs({})


def test_fields_that_newer_readers_know_no_more() -> None:
    """The verdict of the library's releases: v0.7.0 to v1.0.1 take the field, v1.1.0 does not."""
    rdt = changed("devices.0.containerEdits", {"intelRdt": {"enableCMT": True}}, {**SMALL, "cdiVersion": "0.7.0"})
    refused = [
        "devices[0] (d0).containerEdits.intelRdt.enableCMT: was removed in CDI 1.1.0, whose readers refuse "
        "the whole file: remove the field"
    ]
    assert said(rdt) == said(rdt, "1.0.0") == []
    assert said(rdt, "1.1.0") == said({**rdt, "cdiVersion": "1.1.0"}) == refused


@pytest.mark.parametrize("place", ["device d0", "containerEdits"])
@pytest.mark.parametrize(
    ("edits", "accepted", "since", "feature"),
    [
        ({"additionalGids": []}, "0.6.0", "0.7.0", "additional gids"),
        ({"additionalGids": None}, "0.6.0", "0.7.0", "additional gids"),
        ({"intelRdt": None}, "0.6.0", "0.7.0", "Intel RDT"),
        ({"intelRdt": {"schemata": None}}, "1.0.0", "1.1.0", "Intel RDT's schemata"),
        ({"intelRdt": {"enableMonitoring": False}}, "1.0.0", "1.1.0", "Intel RDT's enableMonitoring"),
        ({"intelRdt": {"enableMonitoring": None}}, "1.0.0", "1.1.0", "Intel RDT's enableMonitoring"),
        ({"netDevices": []}, "1.0.0", "1.1.0", "network devices"),
        ({"netDevices": None}, "1.0.0", "1.1.0", "network devices"),
    ],
)
def test_an_empty_field_that_the_runtime_does_not_know(
    edits: dict[str, Any], place: str, accepted: str, since: str, feature: str
) -> None:
    """The library before that version reads no file with the field, whatever its value and the file's version."""
    version = "0.7.0" if edits.get("intelRdt") else "0.5.0"
    at = "devices.0.containerEdits" if place == "device d0" else "containerEdits"
    spec = changed(at, {"env": ["A=b"], **edits}, {**SMALL, "cdiVersion": version})
    assert said(spec) == said(spec, since) == []
    assert said(spec, accepted) == [
        f"{place}: has an empty field for {feature} (CDI {since}): this runtime accepts CDI up to {accepted}, and "
        "refuses the whole file for the field: remove it"
    ]


def test_empty_annotations_that_the_runtime_does_not_know() -> None:
    for spec in ({**SMALL, "annotations": {}}, changed("devices.0.annotations", {}, SMALL)):
        assert said(spec) == said(spec, "0.6.0") == []
        (problem,) = said(spec, "0.5.0")
        assert "has an empty field for annotations (CDI 0.6.0): this runtime accepts CDI up to 0.5.0" in problem


def test_the_root_class_of_intel_rdt() -> None:
    rdt = changed("devices.0.containerEdits", {"intelRdt": {"closID": "/"}}, {**SMALL, "cdiVersion": "0.7.0"})
    assert said(rdt) == said(rdt, "1.1.0") == []
    (problem,) = said(rdt, "1.0.0")
    assert problem.endswith("intelRdt.closID: must be the name of one directory (before CDI 1.1.0), not '/'")


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "1.2.0", "0.3", "vv0.5.0"])
def test_versions_that_nobody_takes(version: str) -> None:
    (problem,) = said({**SMALL, "cdiVersion": version})
    assert problem.startswith("cdiVersion: '%s' is not a CDI version; known versions: 0.3.0, " % version)


def test_files_are_read_as_runtimes_read_them(tmp_path: Path) -> None:
    """Either ending as YAML, and a number for text where text is asked for."""
    yaml = "cdiVersion: 0.5.0\nkind: vendor.com/class\ndevices: [{name: %s, containerEdits: {env: [A=b]}}]\n"
    write(tmp_path / "a.json", yaml % "0")
    write(tmp_path / "b.yaml", "annotations: {a: 1, t: true}\n" + (yaml % "1").replace("0.5.0", "0.6.0"))
    write(tmp_path / "c.json", changed("devices.0.name", 2, {**SMALL, "cdiVersion": "0.5.0"}))
    files = check_directories([str(tmp_path)], None)
    assert [(file.devices, file.problems) for file in files] == [(("0",), ()), (("1",), ()), (("2",), ())]
    write(tmp_path / "e.yaml", (yaml % "e").replace("kind", "Kind"))
    assert findings(tmp_path)["e.yaml"][0].startswith("Kind: is not a field of CDI")
    write(tmp_path / "d.yaml", (yaml % "d").replace("A=b", "5"))
    assert findings(tmp_path)["d.yaml"] == ["devices[0] (d).containerEdits.env[0]: must have the form NAME=value"]


_BOMB = "- &a0 [0, 0]\n" + "".join(f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("kind: vendor.com/class\ndevices: &d [*d]\n", "'d' contains itself at line 2"),
        (f"cdiVersion: 0.3.0\nkind:\n{_BOMB}", "write out the values instead of aliases"),
        (
            f"cdiVersion: 0.3.0\nkind: vendor.com/class\ndevices: [{{name: 0x{'f' * 6000}, containerEdits: {{}}}}]",
            "a number has more than 1000 digits at line 3",
        ),
        ('{"kind": %s}' % ("[" * 900 + "]" * 900), "cannot be parsed: maximum recursion depth exceeded"),
    ],
)
def test_a_hostile_file_costs_no_other_file(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "good.json").write_text(json.dumps(SMALL))
    (tmp_path / ("hostile.json" if content.startswith("{") else "hostile.yaml")).write_text(content)
    good, hostile = check_directories([str(tmp_path)], None)
    assert not good.problems
    assert says in str(hostile.problems[0])


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("kind", "v/class", "kind"),
        ("kind", "vendor.com/x", "kind"),
        ("kind", "v/a/b", "kind"),
        (EDITS + "deviceNodes", [None], "devices[0].containerEdits.deviceNodes[0]"),
        (EDITS + "hooks", [None], "devices[0].containerEdits.hooks[0]"),
        (EDITS + "mounts", [None], "devices[0].containerEdits.mounts[0]"),
        (EDITS + "netDevices", [None], "devices[0].containerEdits.netDevices[0]"),
        ("containerEdits", {"mounts": [{"hostPath": "/x", "containerPath": "/y"}, None]}, "containerEdits.mounts[1]"),
    ],
)
def test_a_file_that_crashes_a_runtime_is_harm(tmp_path: Path, path: str, value: Any, where: str) -> None:
    """Its owner may be anybody: a runtime with CDI reads every file before it starts."""
    (tmp_path / "foreign.json").write_text(json.dumps(changed(path, value, FULL)))
    specs = Resolution(check_directories([str(tmp_path)], None))
    (file,) = specs.every.values()
    (crash,) = file.crashes
    assert (crash.where, "crashes containerd" in crash.message) == (where, True)
    assert crash in specs.harm(file)


def test_what_runtimes_only_refuse_is_no_crash(tmp_path: Path) -> None:
    for number, kind in enumerate(["1/x", "vendor.com/1", "x", "/x", "x/", "\u00e9/x", "vendor.com/-"]):
        (tmp_path / f"{number}.json").write_text(json.dumps({**SMALL, "kind": kind}))
    (tmp_path / "null.json").write_text(json.dumps({**SMALL, "devices": [None], "containerEdits": {"env": [None]}}))
    specs = Resolution(check_directories([str(tmp_path)], None))
    found = [(bool(file.refusals), file.crashes, specs.harm(file)) for file in specs.every.values()]
    assert found == [(True, (), ())] * 8


def test_aliases_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "cdiVersion: 0.3.0\nkind: vendor.com/class\ndevices:\n"
        "- {name: a, containerEdits: &e {env: [A=b]}}\n- {name: b, containerEdits: *e}\n"
    )
    (file,) = check_directories([str(tmp_path)], None)
    assert file.devices == ("a", "b")
    assert not file.problems


def test_edits_that_are_none() -> None:
    for edits in ({}, {"env": []}, {"intelRdt": None}, {"netDevices": [], "additionalGids": []}):
        (problem,) = said(changed("devices.0.containerEdits", edits, {**SMALL, "cdiVersion": "1.1.0"}))
        assert problem == "devices[0] (d0).containerEdits: is empty: CDI refuses a device without edits"
    assert said(changed("devices.0.containerEdits", {"intelRdt": {}}, {**SMALL, "cdiVersion": "0.7.0"})) == []


def test_the_same_device_twice_in_a_file() -> None:
    twice = changed("devices", SMALL["devices"] * 2, SMALL)
    assert said(twice) == ["devices[1] (d0).name: is already the name of devices[0]: rename one"]


@pytest.mark.parametrize("data", [None, [], "text", 5, {}])
def test_what_is_no_spec_at_all(data: Any) -> None:
    assert said(data)


def test_a_version_that_this_runtime_refuses() -> None:
    assert said({**SMALL, "cdiVersion": "1.0.0"}, "0.8.0") == [
        "cdiVersion: is 1.0.0, but this runtime accepts versions up to 0.8.0"
    ]
    assert [version for version in VERSIONS if said({**SMALL, "cdiVersion": version})] == []
    assert said({**SMALL, "cdiVersion": "v0.5.0"}) == []


def write(path: Path, spec: Any, mode: int = 0o644) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(spec if isinstance(spec, str) else json.dumps(spec))
    path.chmod(mode)
    return path


def findings(*directories: Path) -> dict[str, list[str]]:
    specs = Resolution(check_directories([str(directory) for directory in directories], None))
    files = specs.every.values()
    return {os.path.basename(file.path): [str(problem) for problem in specs.problems(file)] for file in files}


def test_files(tmp_path: Path) -> None:
    write(tmp_path / "good.json", SMALL)
    write(
        tmp_path / "good.yaml",
        "cdiVersion: 0.3.0\nkind: other.com/class\ndevices: [{name: d, containerEdits: {env: [A=b]}}]",
    )
    write(tmp_path / "ignored.yml", {**SMALL, "kind": "third.com/class"})
    write(tmp_path / "mode.json", {**SMALL, "kind": "fourth.com/class"}, 0o600)
    write(tmp_path / "broken.json", "{")
    write(tmp_path / "broken.yaml", "a: [")
    write(tmp_path / "after.json", json.dumps({**SMALL, "kind": "eighth.com/class"}) + "x")
    write(tmp_path / "twice.json", '{"kind": "a", "kind": "b"}')
    write(tmp_path / "no-text.json", json.dumps({**SMALL, "kind": "fifth.com/class"}).replace("A=b", "A=\\ud800"))
    merges = "- &b {name: d0, containerEdits: {env: [A=b]}}\n- <<: *b\n  name: d1\n"
    write(tmp_path / "merges.yaml", "cdiVersion: 0.3.0\nkind: sixth.com/class\ndevices:\n" + merges)
    plain = "- {name: d0, containerEdits: &e {env: [A=b]}}\n- name: d1\n  containerEdits:\n    <<: *e\n"
    write(tmp_path / "plain.yaml", "cdiVersion: 0.3.0\nkind: seventh.com/class\ndevices:\n" + plain)
    write(tmp_path / ".hidden.json", {})
    write(tmp_path / "notes.txt", "nothing")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "folder.json")
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    found = findings(tmp_path, tmp_path / "none")
    assert found.pop("good.json") == found.pop("good.yaml") == []
    assert found.pop("ignored.yml") == [
        "the file's name: does not end in .json or .yaml, so that runtimes ignore the file: rename it"
    ]
    assert found.pop("mode.json") == ["the file's mode: 0600: other users cannot read the file: run chmod 0644"]
    assert found.pop("broken.json")[0].startswith("the file: cannot be parsed: Expecting property name")
    assert found.pop("after.json")[0].startswith("the file: cannot be parsed: Extra data: line 1 column ")
    assert found.pop("broken.yaml")[0].startswith("the file: cannot be parsed: ")
    assert found.pop("twice.json") == ["the file: cannot be parsed: the key 'kind' is set twice"]
    assert "invalid Unicode character escape code" in found.pop("no-text.json")[0]
    for name in ("merges.yaml", "plain.yaml"):
        assert found.pop(name)[0].startswith(
            "the file: cannot be parsed: merge keys (<<) are not supported: one is at "
        )
    assert found.pop("link.json") == ["the file: is not a regular file"]
    assert found.pop("gone.json") == ["the file: No such file or directory"]
    assert found.pop(".hidden.json")
    assert found == {}


def test_a_device_in_two_files_of_a_directory_is_dropped_from_both(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a" / "one.json", SMALL), write(tmp_path / "a" / "two.json", SMALL)
    # Another directory only goes before the first; a file that is ignored takes part in nothing.
    write(tmp_path / "b" / "three.json", SMALL)
    write(tmp_path / "a" / "four.yml", SMALL)
    found = findings(tmp_path / "a", tmp_path / "b")
    assert found["one.json"] == [
        "device vendor.com/class=d0: is also defined in %s, and runtimes drop both: remove one" % two
    ]
    assert found["two.json"] == [
        "device vendor.com/class=d0: is also defined in %s, and runtimes drop both: remove one" % one
    ]
    assert found["three.json"] == []
    assert len(found["four.yml"]) == 1


def test_the_command_names_what_overrides_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = write(tmp_path / "a" / "node-device-plugin_vendor.com_class.json", SMALL)
    stolen = {**SMALL, "devices": [{"name": "d0", "containerEdits": {"env": ["STOLEN=1"]}}]}
    theirs = write(tmp_path / "b" / "theirs.json", stolen)
    places = ["--dir", str(tmp_path / "a"), "--dir", str(tmp_path / "b"), "--socket", str(tmp_path / "none.sock")]
    assert main(["cdi", "check", *places]) == 1
    says = (
        "device vendor.com/class=d0: overrides the same name in %s, so that containers get the device of this file"
        % ours
    )
    assert capsys.readouterr().out.splitlines()[-1] == "%s: %s" % (theirs, says)


def test_a_directory_that_is_named_twice_is_read_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.json", "two.json"):
        write(tmp_path / name, SMALL)
    places = ["--dir", str(tmp_path), "--dir", str(tmp_path)]
    assert main(["cdi", "check", *places, "--socket", str(tmp_path / "none.sock")]) == 1
    assert capsys.readouterr().out.count("is also defined in") == 2


def test_of_a_directory_that_is_listed_twice_the_last_place_counts(tmp_path: Path) -> None:
    """As in the CDI library, which cleans the names."""
    first, second = (str(write(tmp_path / name / f"{name}.json", SMALL)) for name in "ab")
    for again in (f"{tmp_path}/a", f"{tmp_path}/a/", f"{tmp_path}/b/../a"):
        specs = Resolution(check_directories([f"{tmp_path}/a", f"{tmp_path}/b", again], None))
        assert list(specs.every) == [second, first]
        assert specs.files["vendor.com/class=d0"].path == first


def test_one_of_ours_among_several_makes_it_harm(tmp_path: Path) -> None:
    ours = "node-device-plugin_vendor.com_class.json"
    stolen = {**SMALL, "devices": [{"name": "d0", "containerEdits": {"env": ["STOLEN=1"]}}]}
    for name in (f"a/{ours}", f"b/{ours}"):
        write(tmp_path / name, SMALL)
    theirs = [write(tmp_path / name, stolen) for name in ("c/one.json", "c/two.json")]
    places = [str(tmp_path / name) for name in "abc"]

    def harm() -> list[str]:
        specs = Resolution(check_directories(places, None))
        return [str(problem) for path in theirs if path.exists() for problem in specs.harm(specs.every[str(path)])]

    # Runtimes drop both.
    assert harm() == []
    theirs[1].unlink()
    # Of ours, the file that a container would get the device of.
    (overrides,) = harm()
    assert f"overrides the same name in {tmp_path}/b/{ours}, so that" in overrides
    for path in (theirs[1], tmp_path / "c" / ours):
        write(path, stolen)
    assert len(harm()) == 2


def test_a_refused_file_of_ours_takes_no_device_from_another_of_ours(tmp_path: Path) -> None:
    ours = "node-device-plugin_vendor.com_class.json"
    good, refused = write(tmp_path / "a" / ours, SMALL), write(tmp_path / "b" / ours, {**SMALL, "colour": "red"})
    specs = Resolution(check_directories([str(path.parent) for path in (good, refused)], None))
    assert [file.path for file in specs.files.values()] == [str(good)]
    assert (specs.overridden, specs.harm(specs.every[str(good)])) == ({}, ())


def test_a_file_that_is_refused_takes_no_device_from_another(tmp_path: Path) -> None:
    write(tmp_path / "bad.json", {**SMALL, "colour": "red"})
    write(tmp_path / "good.json", SMALL, 0o600)
    found = findings(tmp_path)
    assert [problem.partition(":")[0] for problem in found["good.json"]] == ["the file's mode"]
    assert [problem.partition(":")[0] for problem in found["bad.json"]] == ["colour"]
    names = CdiNames([str(tmp_path)])
    names.read(["vendor.com/class=d0"])
    assert names.problem("vendor.com/class=d0") is None


def test_whose_it_is(tmp_path: Path) -> None:
    assert check_file(str(write(tmp_path / "node-device-plugin_x_y.json", SMALL)), None).owner == "ours"
    assert check_file(str(write(tmp_path / "nvidia.yaml", SMALL)), None).owner == "foreign"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cdi"
    arguments = ["cdi", "check", "--dir", str(folder), "--socket", str(tmp_path / "none.sock")]
    assert main(arguments) == 0
    assert capsys.readouterr().out.endswith("no spec in %s\n" % folder)
    write(folder / "good.json", SMALL)
    assert main(arguments) == 0
    write(folder / "one-character.json", {**SMALL, "kind": "v/class"})
    capsys.readouterr()
    assert main(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["FILE", "OWNER", "KIND", "CDI", "DEVICES", "STATE"]
    assert lines[3].split() == [str(folder / "good.json"), "foreign", "vendor.com/class", "0.3.0", "1", "ok"]
    assert lines[4].split() == [str(folder / "one-character.json"), "foreign", "v/class", "0.3.0", "1", "wrong"]
    assert lines[6].startswith("%s: kind: the CDI vendor 'v' has fewer" % (folder / "one-character.json"))
    assert main([*arguments, "-o", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["directories"] == [str(folder)]
    assert [len(file["problems"]) for file in data["files"]] == [0, 1]


def test_a_directory_that_hangs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(cdi_specs, "check_directories", lambda *_: hangs.wait())
    monkeypatch.setattr(cdi_specs, "_LIMIT", 0.2)
    assert main(["cdi", "check", "--dir", str(tmp_path), "--socket", str(tmp_path / "none.sock")]) == 1
    hangs.set()
    problem = "reading the CDI specs in %s did not answer in 0.2 s" % tmp_path
    assert capsys.readouterr().err == "node-device-plugin: %s\n" % problem


def test_a_link_to_another_file_tells_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "shadow").write_text("root:$y$j9T$secret:20780:0:99999:7:::\nplain: 1\n")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "shadow")
    checked = check_file(str(tmp_path / "link.yaml"), None)
    problems = [str(problem) for problem in checked.problems]
    assert any(each.startswith("a key of 36 characters: is not a field of CDI") for each in problems), problems
    assert any(each.startswith("plain: is not a field of CDI") for each in problems)
    assert "secret" not in str(checked)


def test_no_control_character_of_a_file_reaches_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m\nb.json").write_text('{"kind": "\\u001b[2J"}')
    report = Report((str(tmp_path),), "x", None, Resolution(check_directories([str(tmp_path)], None)))
    assert report.problems
    assert "\x1b" not in report.to_text()
    assert not [line for line in report.to_text().splitlines() if line.startswith("b.json")]
