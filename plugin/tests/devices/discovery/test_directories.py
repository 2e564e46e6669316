"""Which directories have to be watched."""

from pathlib import Path
from typing import Any

from node_device_plugin.cdi.links import Links
from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.discovery.directories import directories

from ...cdi.specs import links_of
from .conftest import resource


def watched(tmp_path: Path, discover: dict[str, Any]) -> set[str]:
    found = directories(resource(discover), Links())
    return {path[len(str(tmp_path)) :] if path.startswith(str(tmp_path)) else path for path in found}


def test_the_directory_of_a_pattern_or_what_there_is_above_it(tmp_path: Path) -> None:
    discover = {"paths": ["%s/dev/serial/by-id/*" % tmp_path]}
    assert watched(tmp_path, discover) == {""}
    (tmp_path / "dev" / "serial").mkdir(parents=True)
    assert watched(tmp_path, discover) == {"/dev/serial"}
    (tmp_path / "dev" / "serial" / "by-id").mkdir()
    assert watched(tmp_path, discover) == {"/dev/serial/by-id"}


def test_where_directories_are_wildcards_the_ones_above_too(tmp_path: Path) -> None:
    for name in ("usb/001", "usb/002"):
        (tmp_path / name).mkdir(parents=True)
    assert watched(tmp_path, {"paths": ["%s/usb/*/*" % tmp_path]}) == {"/usb", "/usb/001", "/usb/002"}


def test_the_nodes_that_belong_to_a_device(tmp_path: Path) -> None:
    (tmp_path / "vfio").mkdir()
    discover = {"pci": [{"vendor": "10de"}], "nodes": [{"path": "%s/vfio/{iommu_group}" % tmp_path}]}
    assert watched(tmp_path, discover) == {"/vfio"}


def test_the_nodes_of_other_programs_specs() -> None:
    assert "/dev" in directories(resource({"cdi": {"kind": "nvidia.com/gpu"}}), Links())
    named = {"name": "example.com/gpu", "devices": [{"id": "gpu0", "cdi_devices": ["nvidia.com/gpu=0"]}]}
    (declared,) = parse_resources([named])
    assert directories(declared, Links()) == {"/dev"}


def test_usb_nodes_are_watched_where_the_kernel_makes_them() -> None:
    assert directories(resource({"usb": [{"vendor": "0403"}]}), Links()) <= {"/dev", "/dev/bus", "/dev/bus/usb"} | {
        str(path) for path in Path("/dev/bus/usb").glob("*")
    }


def test_declared_nodes_and_what_their_links_lead_to(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "there" / "node").touch()
    (tmp_path / "here" / "link").symlink_to("../there/node")
    (one,) = parse_resources(
        [
            {
                "name": "a.b/cc",
                "devices": [
                    {"id": "a", "nodes": [{"path": "/dev/a", "host_path": "%s/here/link" % tmp_path}]},
                    {"id": "b", "nodes": [{"path": "/dev/b", "host_path": "%s/not/yet" % tmp_path}]},
                ],
            }
        ]
    )
    assert directories(one, links_of([one])) == {str(tmp_path / "here"), str(tmp_path / "there"), str(tmp_path)}
