"""What paths of the host lead to, as it was when they were last looked at."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

from node_device_plugin.cdi.links import Links


async def test_a_directory_that_cannot_be_read_has_the_links_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, links = tmp_path / "link", Links()
    link.symlink_to("/dev/null")
    await links.look_at([str(link)])

    def fail(_path: str) -> NoReturn:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fail)
        await links.look_at([str(link)])
    assert links.real(str(link)) == "/dev/null"
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    await links.look_at([str(link)])
    assert not links.target(str(link))


async def test_links_that_are_gone_are_not_kept(tmp_path: Path) -> None:
    links = Links()
    for number in range(9):
        link = tmp_path / str(number)
        link.symlink_to("/dev/null")
        await links.look_at([str(link)])
        link.unlink()
    kept = tmp_path / "kept"
    kept.symlink_to("/dev/zero")
    await links.look_at([str(kept)])
    await links.look_at([str(tmp_path / "other")])
    assert [name for name in os.listdir(tmp_path) if links.target(str(tmp_path / name))] == ["kept"]
    assert not any(links.target(str(tmp_path / str(number))) for number in range(9))


@pytest.mark.parametrize("through", ["", "folder-link/"])
async def test_a_link_leads_where_the_kernel_finds_it(tmp_path: Path, through: str) -> None:
    (tmp_path / "folder" / "in").mkdir(parents=True)
    (tmp_path / "folder-link").symlink_to("folder")
    folder = tmp_path / "folder"
    (folder / "node").touch()
    (folder / "in-link").symlink_to("in")
    targets = {
        "relative": "node",
        "absolute": "/dev/null",
        "slashes": "//dev//null",
        "up": "in/../../folder/node",
        "through": "in-link/../node",
        "chain": "relative",
        "of-folder": "in/",
        "of-folder-link": "in-link",
        "parent": "..",
        "itself": ".",
        "gone": "no/such/node",
        "loop": "loop",
        "pool": "pool2",
        "pool2": "pool",
        "below-loop": "loop/node",
        "below-file": "node/../node",
    }
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    links = Links()
    paths = [str(tmp_path / (through or "folder/") / name) for name in targets]
    await links.look_at(paths)
    assert {path: links.real(path) for path in paths} == {path: os.path.realpath(path) for path in paths}
    assert all(map(links.target, paths))
