"""A file's changes are noticed at once, however they are made."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Optional

import pytest

from node_device_plugin.devices.events import file_watch
from node_device_plugin.devices.events.file_watch import follow
from node_device_plugin.devices.events.inotify import Inotify
from node_device_plugin.devices.events.watch import Watch


class Waiting(Watch):
    """Knows which watches wait for a change."""

    all: "set[Waiting]" = set()

    async def changed(self, at_most: Optional[float] = None) -> bool:
        Waiting.all.add(self)
        return await super().changed(at_most)

    @classmethod
    async def until(cls, number: int) -> None:
        """Wait for that many watches. On a busy machine, the threads that come before a wait start late."""
        while len(cls.all) < number:
            await asyncio.sleep(0.005)


class Followed:
    """link: the same by a link, as a ConfigMap is mounted."""

    def __init__(self, path: Path, link: "Optional[Followed]" = None) -> None:
        self.path = path
        self.link = link
        self.changes = 0

    def changed(self) -> None:
        self.changes += 1

    async def one_more(self) -> None:
        """Wait for exactly one change. The slow sweep (30 s) would come too late."""
        wanted = self.changes + 1

        async def seen() -> None:
            while self.changes < wanted:
                await asyncio.sleep(0.005)

        await asyncio.wait_for(seen(), 10)
        await asyncio.sleep(0.2)
        assert self.changes == wanted


@pytest.fixture
async def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Followed]:
    # As a ConfigMap is mounted.
    (tmp_path / "..1").mkdir()
    (tmp_path / "..1" / "config.yaml").write_text("one")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    (tmp_path / "plain.yaml").write_text("one")
    link = Followed(tmp_path / "config.yaml")
    given = Followed(tmp_path / "plain.yaml", link)
    monkeypatch.setattr(file_watch, "Watch", Waiting)
    Waiting.all.clear()
    tasks = [asyncio.create_task(follow([str(each.path), ""], each.changed)) for each in (given, link)]
    await Waiting.until(len(tasks))
    yield given
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_written_in_place(followed: Followed) -> None:
    followed.path.write_text("two")
    await followed.one_more()
    with followed.path.open("a") as file:
        file.write("more")
    await followed.one_more()


async def test_replaced_by_a_rename(followed: Followed) -> None:
    for text in ("two", "three"):
        new = followed.path.with_name("new")
        new.write_text(text)
        os.replace(new, followed.path)
        await followed.one_more()


async def test_removed_and_back(followed: Followed) -> None:
    followed.path.unlink()
    await followed.one_more()
    followed.path.write_text("again")
    await followed.one_more()


async def test_moved_away_and_written_anew_as_editors_do(followed: Followed) -> None:
    followed.path.rename(followed.path.with_name("plain.yaml~"))
    followed.path.write_text("two")
    await followed.one_more()


async def test_the_link_of_a_config_map(followed: Followed) -> None:
    link = followed.link
    assert link is not None
    for number in ("..2", "..3"):
        folder = link.path.with_name(number)
        folder.mkdir()
        (folder / "config.yaml").write_text(number)
        link.path.with_name("..tmp").symlink_to(number)
        os.replace(link.path.with_name("..tmp"), link.path.with_name("..data"))
        await link.one_more()


async def test_a_link_that_changes_while_its_directories_are_watched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an event: the former watches have ended, and the new ones have not begun."""

    def lead(version: str) -> None:
        (tmp_path / version).mkdir(exist_ok=True)
        (tmp_path / version / "config.yaml").write_text(version)
        (tmp_path / "..tmp").symlink_to(version)
        os.replace(tmp_path / "..tmp", tmp_path / "..data")

    lead("..1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    real, versions, read = Inotify._add, ["..3"], []

    def add(inotify: Inotify, path: str, mask: int) -> tuple[int, int]:
        if versions and path == str(tmp_path) and os.readlink(tmp_path / "..data") == "..2":
            lead(versions.pop())
        return real(inotify, path, mask)

    monkeypatch.setattr(Inotify, "_add", add)
    monkeypatch.setattr(file_watch, "Watch", Waiting)
    Waiting.all.clear()
    path = tmp_path / "config.yaml"
    task = asyncio.create_task(follow([str(path)], lambda: read.append(path.read_text())))
    await Waiting.until(1)
    lead("..2")

    async def seen() -> None:
        while read[-1:] != ["..3"]:
            await asyncio.sleep(0.005)

    await asyncio.wait_for(seen(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_file_in_another_directory(followed: Followed, tmp_path: Path) -> None:
    """Such as the default of a file."""
    (tmp_path / "defaults").mkdir()
    both = Followed(tmp_path / "defaults" / "default.yaml")
    task = asyncio.create_task(follow([str(followed.path), str(both.path)], both.changed))
    await Waiting.until(3)
    both.path.write_text("one")
    await both.one_more()
    followed.path.unlink()
    await both.one_more()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_neighbour_is_no_news(followed: Followed) -> None:
    followed.path.with_name("other.yaml").write_text("x")
    os.utime(followed.path.parent)
    await asyncio.sleep(0.3)
    assert followed.changes == 0
