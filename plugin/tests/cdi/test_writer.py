"""Dynamic CDI specs: whole at any time, readable, kept while held, and gone when nobody needs them."""

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.cdi import writer
from node_device_plugin.cdi.links import Links
from node_device_plugin.cli.main import main
from node_device_plugin.declaration import Resource, cdi, parse_configuration, parse_resources
from node_device_plugin.kubelet.queries import HeldDevice, Holders
from node_device_plugin.telemetry.metrics import CDI_WRITES

from . import specs

FILE = "node-device-plugin_example.com_dev.json"


def resource(*ids: str, **more: Any) -> Resource:
    """A kind of the plugin's, with these devices as if they were discovered."""
    devices = [{"id": name, "nodes": [{"path": "/dev/" + name}]} for name in ids]
    (only,) = parse_resources(
        [{"name": "example.com/dev", "devices": devices, "discover": {"paths": ["/dev/x*"]}, **more}]
    )
    return only


def spec(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / FILE).read_text())
    return found


def names(folder: Path) -> list[str]:
    return [device["name"] for device in spec(folder)["devices"]]


def test_written_once_for_everybody_to_read_and_not_touched_without_a_change(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "cdi"
    old = os.umask(0o077)
    try:
        assert specs.write([resource("a", "b")], str(folder)) == {}
    finally:
        os.umask(old)
    assert names(folder) == ["a", "b"]
    before = (folder / FILE).stat()
    assert before.st_mode & 0o777 == 0o644
    specs.write([resource("a", "b")], str(folder))
    assert (folder / FILE).stat().st_ino == before.st_ino
    specs.write([resource("a", "b", "c")], str(folder))
    assert (folder / FILE).stat().st_ino != before.st_ino
    assert os.listdir(folder) == [FILE]


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_everybody_may_look_into_a_directory_that_the_plugin_makes_and_nobody_else_may_write(
    tmp_path: Path, mask: int
) -> None:
    folder = tmp_path / "cdi"
    old = os.umask(mask)
    try:
        specs.write([resource("a")], str(folder))
    finally:
        os.umask(old)
    assert folder.stat().st_mode & 0o777 == 0o755


def test_plugins_10_a_mode_that_a_runtime_cannot_read_is_mended(tmp_path: Path) -> None:
    """CDI#224."""
    specs.write([resource("a")], str(tmp_path))
    (tmp_path / FILE).chmod(0o600)
    specs.write([resource("a")], str(tmp_path))
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o644


def test_only_kinds_with_discovered_devices_are_written(tmp_path: Path) -> None:
    (declared,) = parse_resources([{"name": "a.bb/cc", "devices": [{"id": "x", "nodes": [{"path": "/dev/x"}]}]}])
    assert specs.write([declared, resource()], str(tmp_path)) == {}
    assert os.listdir(tmp_path) == []


def test_plugins_10_what_a_pod_holds_is_kept_across_a_restart_and_the_rest_is_pruned(tmp_path: Path) -> None:
    """sriov#576: a container that restarts resolves its names again."""
    specs.write([resource("a", "b", "c", container_edits={"env": ["OLD=1"]})], str(tmp_path))
    now = resource("a", replicas=2, container_edits={"env": ["NEW=1"]})
    specs.write([now], str(tmp_path))
    assert names(tmp_path) == ["a", "b", "c"]
    assert specs.orphans([now], str(tmp_path)) == ["example.com/dev=b", "example.com/dev=c"]
    assert specs.prune([now], ["b::1"], str(tmp_path)) == ["example.com/dev=c"]
    assert names(tmp_path) == ["a", "b"]
    assert spec(tmp_path)["containerEdits"] == {"env": ["NEW=1"]}
    assert spec(tmp_path)["devices"][1]["containerEdits"]["env"] == ["OLD=1"]
    assert specs.prune([now], [], str(tmp_path)) == ["example.com/dev=b"]
    assert specs.prune([now], [], str(tmp_path)) == []


def test_what_was_given_under_another_kind_is_kept_while_it_is_held(tmp_path: Path) -> None:
    """Its name of that time stands in the kubelet's checkpoint, whatever the kind is called now."""
    specs.write([resource("a", cdi_kind="example.com/old")], str(tmp_path))
    now = resource("a", cdi_kind="example.com/new")
    specs.write([now], str(tmp_path))
    assert specs.prune([now], ["a"], str(tmp_path)) == []
    assert writer.devices(str(tmp_path)) == ["example.com/new=a", "example.com/old=a"]
    assert specs.prune([now], [], str(tmp_path)) == ["example.com/old=a"]


def test_what_is_known_to_be_written_is_rendered_again_only_where_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []
    real = cdi.render_spec

    def render(resource: Resource) -> Any:
        rendered.append(" ".join(device.id for device in resource.devices))
        return real(resource)

    monkeypatch.setattr(cdi, "render_spec", render)
    written: dict[str, Optional[writer.Written]] = {}
    for _ in range(2):
        specs.write([resource("a")], str(tmp_path), written)
    assert rendered == ["a"]
    specs.write([resource("a", "b")], str(tmp_path), written)
    assert rendered == ["a", "a b"]
    for harm in (
        lambda: (tmp_path / FILE).write_text("{}"),
        (tmp_path / FILE).unlink,
        lambda: (tmp_path / FILE).chmod(0),
    ):
        harm()
        specs.write([resource("a", "b")], str(tmp_path), written)
        assert names(tmp_path) == ["a", "b"]
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o644


def test_orphans_of_ours_go_and_nothing_else(tmp_path: Path) -> None:
    specs.write([resource("a", "b")], str(tmp_path))
    foreign = tmp_path / "vendor.json"
    foreign.write_text('{"kind": "example.com/dev", "devices": [{"name": "a"}]}')
    broken = tmp_path / "node-device-plugin_x.json"
    broken.write_text("{")
    assert specs.prune([], ["b"], str(tmp_path)) == ["example.com/dev=a"]
    assert names(tmp_path) == ["b"]
    assert not broken.exists()
    assert specs.prune([], [], str(tmp_path)) == ["example.com/dev=b"]
    assert os.listdir(tmp_path) == ["vendor.json"]
    assert specs.prune([], [], str(tmp_path / "not there")) == []


def test_the_command_that_ends_it_all(short_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    specs.write([resource("a", "b")], str(short_path))
    assert writer.devices(str(short_path)) == ["example.com/dev=a", "example.com/dev=b"]
    arguments = ["cdi", "prune", "--dir", str(short_path), "--kubelet-root", str(short_path)]
    arguments += ["--device-plugin-dir", str(short_path), "-o", "json"]
    said = {"removed": ["example.com/dev=a", "example.com/dev=b"], "kept": [], "holders": {}}
    for more in (["--dry-run"], []):
        assert os.listdir(short_path) == [FILE]
        assert main([*arguments, *more]) == 0
        assert json.loads(capsys.readouterr().out) == said
    assert os.listdir(short_path) == []
    assert main(arguments[:-2]) == 0
    assert capsys.readouterr().out == "removed: nothing\nkept: nothing\n"


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_the_command_says_who_holds_what_stays(
    short_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    async def holders(*_: str) -> Holders:
        held = HeldDevice("example.com/dev", "b::1", "default", "viewer", "main")
        return Holders("kubelet", (held, held._replace(device="c", namespace="", pod="uid")))

    monkeypatch.setattr("node_device_plugin.kubelet.queries.holders", holders)
    specs.write([resource("a", "b")], str(short_path))
    assert main(["cdi", "prune", "--dir", str(short_path), "-o", "json", *more]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "removed": ["example.com/dev=a"],
        "kept": ["example.com/dev=b"],
        "holders": {"example.com/dev=b": "default/viewer"},
    }


def test_the_folder_goes_with_the_last_spec_where_a_boot_would_take_it(tmp_path: Path) -> None:
    run, etc = tmp_path / "run", tmp_path / "etc"
    for folder in (run / "cdi", run / "others", etc):
        folder.mkdir(parents=True)
    (run / "others" / "vendor.json").touch()
    link = tmp_path / "var-run"
    link.symlink_to(run)
    for directory in (link / "cdi", link / "others", etc, run / "not there", run):
        writer.remove_directory(str(directory), str(run))
    assert sorted(each.name for each in run.iterdir()) == ["others"]
    assert etc.is_dir()


def test_the_command_takes_the_folder_away(
    short_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(writer, "remove_directory", asked.append)
    arguments = ["cdi", "prune", "--dir", str(short_path), "--kubelet-root", str(short_path)]
    assert main([*arguments, "--device-plugin-dir", str(short_path)]) == 0
    assert asked == [str(short_path)]
    capsys.readouterr()


def test_what_a_killed_instance_left_half_written_goes(tmp_path: Path) -> None:
    """Whatever its time says: a clock may be wrong."""
    ahead, now, written = (tmp_path / (".%s.%s" % (FILE, ending)) for ending in ("ahead", "now", "written"))
    for path in (ahead, now, written):
        path.touch()
    os.utime(ahead, (2**32, 2**32))
    with written.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        specs.prune([], [], str(tmp_path))
        assert os.listdir(tmp_path) == [written.name]
    specs.prune([], [], str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_being_written_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, left = os.replace, []

    def prune_first(staged: str, path: str) -> None:
        specs.prune([], [], str(tmp_path))
        left.extend(os.listdir(tmp_path))
        replace(staged, path)

    monkeypatch.setattr(os, "replace", prune_first)
    assert specs.write([resource("a")], str(tmp_path)) == {}
    assert left
    assert os.listdir(tmp_path) == [FILE]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_disk_leaves_the_old_spec_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    specs.write([resource("a")], str(tmp_path))
    before = (tmp_path / FILE).read_bytes()
    failed = CDI_WRITES.value("failed")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", fail)
        problems = specs.write([resource("a", "b")], str(tmp_path))
    assert problems == {"example.com/dev": "cannot write the CDI spec %s: %s" % (tmp_path / FILE, os.strerror(number))}
    assert (tmp_path / FILE).read_bytes() == before
    assert os.listdir(tmp_path) == [FILE]
    assert CDI_WRITES.value("failed") == failed + 1
    assert specs.write([resource("a", "b")], str(tmp_path)) == {}
    assert names(tmp_path) == ["a", "b"]


def test_what_is_declared_is_the_plugins_where_nobody_else_can_write_it(tmp_path: Path) -> None:
    data = {
        "resources": [
            {"name": "a.example/kvm", "devices": [{"id": "kvm0", "nodes": [{"path": "/dev/kvm"}]}]},
            {"name": "a.example/numbers", "devices": [{"id": "one"}], "env": {"NUMBER": "1"}},
        ]
    }
    by_role, by_plugin = (parse_configuration({**data, "cdi_owner": owner}).resources for owner in ("role", "plugin"))
    assert specs.write(by_role, str(tmp_path)) == {}
    assert list(tmp_path.iterdir()) == []
    assert specs.write(by_plugin, str(tmp_path)) == {}
    (file,) = tmp_path.iterdir()
    assert {file.name: json.loads(file.read_text())} == cdi.render_specs(by_role)
    assert cdi.render_specs(by_plugin) == {}
    assert [cdi.render_awaited(resource) for resource in by_plugin] == [json.loads(file.read_text()), None]


def test_a_held_id_may_have_what_stands_before_a_share_s_number(tmp_path: Path) -> None:
    specs.write([resource("a::b", "c::0", "d", "e")], str(tmp_path))
    held = ["a::b", "c::0", "d::7"]
    assert specs.prune([], held, str(tmp_path)) == ["example.com/dev=e"]
    assert names(tmp_path) == ["a::b", "c::0", "d"]


@pytest.mark.parametrize(
    "text",
    [
        '{"devices": [{"name": {}}]}',
        '{"devices": [{"name": null}]}',
        "[" * 100_000,
        "\xff",
        '{"cdiVersion": "0.3.0", "kind": "example.com/dev", "devices": [{"name": "b", "containerEdits": []}]}',
        '{"cdiVersion": "0.3.0", "kind": "example.com/dev", "devices": [{"name": "b", "containerEdits": {"env": 1}}]}',
        '{"cdiVersion": "0.3.0", "kind": "example.com/dev", "containerEdits": {"deviceNodes": [["x"]]},'
        ' "devices": [{"name": "b", "containerEdits": {"env": ["A=b"]}}]}',
    ],
)
def test_what_is_no_spec_under_our_name_ends_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    assert specs.orphans([resource("a")], str(tmp_path)) == []
    assert specs.write([resource("a")], str(tmp_path)) == {}
    assert names(tmp_path) == ["a"]
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    assert specs.prune([], [], str(tmp_path)) == []
    assert os.listdir(tmp_path) == []


def test_edits_of_a_kept_device_that_are_no_list_or_nothing_are_kept_too(tmp_path: Path) -> None:
    """A foreign hand may write what a runtime takes, and what we never write."""
    kept = {"name": "b", "containerEdits": {"env": None, "intelRdt": {"closID": "x"}}}
    common = {"env": ["A=b"], "mounts": None}
    there = {"cdiVersion": "0.7.0", "kind": "example.com/dev", "containerEdits": common, "devices": [kept]}
    (tmp_path / FILE).write_text(json.dumps(there))
    assert specs.write([resource("a")], str(tmp_path)) == {}
    assert spec(tmp_path)["devices"][1] == {
        "name": "b",
        "containerEdits": {"env": ["A=b"], "intelRdt": {"closID": "x"}},
    }


def declared(target: Path, *ids: str, **more: Any) -> Resource:
    """A kind of the role's."""
    devices = [{"id": name, "nodes": [{"path": "/dev/" + name, "host_path": str(target / name)}]} for name in ids]
    (only,) = parse_resources([{"name": "example.com/dev", "devices": devices, **more}])
    return only


def host_paths(folder: Path) -> dict[str, str]:
    return {d["name"]: Path(d["containerEdits"]["deviceNodes"][0]["hostPath"]).name for d in spec(folder)["devices"]}


def test_plugins_7_where_a_declared_node_is_a_link_its_kind_s_spec_has_what_it_leads_to(tmp_path: Path) -> None:
    """squat#78: CDI's library takes no link for a device node; what goes before /etc/cdi has the node itself."""
    cdi_dir, dev = tmp_path / "cdi", tmp_path / "dev"
    dev.mkdir()
    for name in ("ttyUSB0", "ttyUSB1", "plain"):
        (dev / name).touch()
    kind = declared(dev, "gps", "plain", container_edits={"env": ["A=b"]})
    assert specs.write([kind], str(cdi_dir)) == {}
    assert not cdi_dir.exists()
    written: dict[str, Optional[writer.Written]] = {}
    for target in ("ttyUSB0", "ttyUSB1", "nowhere"):
        (dev / "gps").unlink(missing_ok=True)
        (dev / "gps").symlink_to(target)
        assert specs.write([kind], str(cdi_dir), written) == {}
        # All of the kind: a container with both devices gets the kind's edits once.
        assert host_paths(cdi_dir) == {"gps": target, "plain": "plain"}
        assert spec(cdi_dir)["devices"][0]["containerEdits"]["deviceNodes"][0]["path"] == "/dev/gps"
        assert spec(cdi_dir)["containerEdits"] == {"env": ["A=b"]}
    assert specs.prune([kind], [], str(cdi_dir)) == []
    without_cdi = declared(dev, "gps", injection="device_nodes")
    assert specs.write([without_cdi], str(tmp_path / "none")) == {}
    assert not (tmp_path / "none").exists()


def test_what_the_plugin_wrote_once_never_hides_what_is_declared_now(tmp_path: Path) -> None:
    """Its folder goes before the role's: until a spec of it is pruned, which a pod may hold up, it says the same."""
    cdi_dir, dev = tmp_path / "cdi", tmp_path / "dev"
    dev.mkdir()
    (dev / "ttyUSB0").touch()
    (dev / "a").symlink_to("ttyUSB0")
    (dev / "b").symlink_to("ttyUSB0")
    specs.write([declared(dev, "a", "b")], str(cdi_dir))
    (dev / "a").unlink()
    (dev / "a").touch()
    now = declared(dev, "a", "c")
    specs.write([now], str(cdi_dir))
    # Nothing is added to what has to go, and what is declared no more stays as it was.
    assert host_paths(cdi_dir) == {"a": "a", "b": "ttyUSB0"}
    assert specs.prune([now], ["b"], str(cdi_dir)) == ["example.com/dev=a"]
    specs.write([now], str(cdi_dir))
    assert host_paths(cdi_dir) == {"b": "ttyUSB0"}
    assert specs.prune([now], [], str(cdi_dir)) == ["example.com/dev=b"]
    specs.write([now], str(cdi_dir))
    assert os.listdir(cdi_dir) == []


def test_a_link_to_what_no_spec_can_name_ends_nothing(tmp_path: Path) -> None:
    """A file's name is any bytes, a spec is UTF-8."""
    os.symlink(b"\xff", os.fsencode(tmp_path / "a"))
    assert specs.write([declared(tmp_path, "a")], str(tmp_path / "cdi")) == {}
    assert not (tmp_path / "cdi").exists()


def test_a_path_of_another_device_starts_no_container_also_where_the_role_owns_the_spec(tmp_path: Path) -> None:
    (declared,) = parse_resources(
        [{"name": "example.com/dev", "devices": [{"id": d, "nodes": [{"path": f"/dev/{d}"}]} for d in ("a", "b")]}]
    )
    assert writer.write(declared, Links(), str(tmp_path)) is None
    written = writer.write(declared, Links(), str(tmp_path), blocked=["example.com/dev=a", "example.com/other=b"])
    assert written is not None
    assert writer.offered(str(tmp_path)) == {"a": {"/dev/a (another device has this path now)"}}
    # Once the device is back, the name means what the declaration says.
    writer.write(declared, Links(), str(tmp_path), written)
    assert writer.offered(str(tmp_path)) == {"a": {"/dev/a"}}


def test_specs_of_claims_are_not_those_of_resources(tmp_path: Path) -> None:
    directory = str(tmp_path)
    (declared,) = parse_resources([{"name": "a.bb/cc", "devices": [{"id": "x", "nodes": [{"path": "/dev/x"}]}]}])
    assert writer.missing([declared], Links(), directory) == frozenset(), "the kind is the role's"
    writer.write_claim(directory, "uid", "a.bb/cc", {"x": {"env": ["A=1"]}})
    (of_claim,) = os.listdir(tmp_path)
    assert not writer.exists(directory)
    specs.write([resource("a", "b")], directory)
    half = [tmp_path / f".{prefix}x.json.0" for prefix in (cdi.FILE_PREFIX, of_claim)]
    for path in half:
        path.touch()
    assert writer.exists(directory)
    assert writer.devices(directory) == ["example.com/dev=a", "example.com/dev=b"]
    assert writer.prune([], Links(), (), directory, dry_run=True) == ["example.com/dev=a", "example.com/dev=b"]
    assert {name for name, _paths in writer.given(directory)} == {"example.com/dev=a", "example.com/dev=b"}
    assert writer.omit(["a.bb/cc=x", "example.com/dev=a"], directory) == ["example.com/dev=a"]
    assert writer.prune([], Links(), [], directory) == ["example.com/dev=b"]
    assert [path.exists() for path in half] == [False, True]
    assert of_claim in os.listdir(tmp_path)
