"""The command ``discover``: what this configuration would find here."""

import json
import os
from pathlib import Path

import pytest

from node_device_plugin.cli.main import main
from node_device_plugin.declaration.names import device_id, name_of_path

CONFIG = """
resources:
  - name: example.com/found
    devices: [{id: fixed, numa_node: 1, nodes: [{path: /dev/null}]}, {id: away, nodes: [{path: /dev/no-such-node}]}]
    discover: {paths: ["%(here)s/link*", "%(here)s/node*"]}
  - {name: example.com/second, discover: {paths: ["%(here)s/node*"]}}
  - {name: example.com/none}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")
def test_what_this_configuration_would_find(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mknod(tmp_path / "node0", 0o20600, os.makedev(1, 3))
    (tmp_path / "link0").symlink_to("node0")
    (tmp_path / "config.yaml").write_text(CONFIG % {"here": tmp_path})
    prefix = str(tmp_path)[1:].replace("/", "-")
    assert main(["discover", "--config", str(tmp_path / "config.yaml"), "-o", "json"]) == 0
    found, second, none = json.loads(capsys.readouterr().out)["resources"]
    fixed, away, link = found["devices"]
    assert (fixed["origin"], fixed["numa_node"], fixed["problem"]) == ("declared", 1, None)
    assert away["problem"].startswith("/dev/no-such-node: ")
    assert link["origin"] == "discovered"
    assert link["nodes"] == [{"path": "%s/link0" % tmp_path, "host_path": "%s/node0" % tmp_path}]
    assert link["properties"] == {"match1": "0"}
    assert second["devices"] == []
    assert [entry["id"].startswith(prefix[:20]) for entry in second["left_out"]] == [True]
    assert "%s/node0 is already a node of example.com/found=" % tmp_path in second["left_out"][0]["reason"]
    assert none == {"name": "example.com/none", "devices": [], "left_out": [], "problem": None}

    assert main(["discover", "--config", str(tmp_path / "config.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["RESOURCE", "DEVICE", "NODES", "NUMA", "STATE"]
    assert lines[1].split() == ["example.com/found", "fixed", "/dev/null", "1", "declared"]
    assert "%s/link0 -> %s/node0" % (tmp_path, tmp_path) in lines[3]
    assert "left out: %s/node0 is already a node of" % tmp_path in lines[4]
    assert lines[5].split(maxsplit=4) == ["example.com/none", "none", "-", "-", "no device found"]


def test_a_folder_is_no_device_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("resources: [{name: example.com/sound, discover: {paths: [%s, /dev/none]}}]" % tmp_path)
    assert main(["discover", "--config", str(config)]) == 0
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split(None, 4) == [
        *("example.com/sound", device_id(name_of_path(str(tmp_path))), "-", "-"),
        "left out: %s is a directory, not a device: set a pattern such as %s/*" % (tmp_path, tmp_path),
    ]


NOTHING = """
resources:
  - {name: example.com/none, discover: {paths: ["%(here)s/x*"], pci: [{vendor: ABCD}]}}
  - name: example.com/declared
    devices: [{id: fixed, nodes: [{path: /dev/null}]}]
    discover: {paths: ["%(here)s/y*"], exclude: [/dev/y0]}
"""


def test_where_nothing_matches_it_says_what_was_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(NOTHING % {"here": tmp_path})
    assert main(["discover", "--config", str(config)]) == 0
    none, fixed, other = capsys.readouterr().out.splitlines()[1:]
    assert none.split(None, 4) == [
        *("example.com/none", "none", "-", "-"),
        'nothing on this node matches paths: ["%s/x*"] or pci: [{"vendor": "abcd"}]' % tmp_path,
    ]
    assert fixed.split()[:2] == ["example.com/declared", "fixed"]
    assert other.endswith('nothing on this node matches paths: ["%s/y*"], or exclude leaves it out' % tmp_path)
