"""What a power cut may leave of a folder: each state of the disk in which what was not synced may be missing.

A recording holds the folder before each system call that changes it, and what was synced by then. Of one moment come
several states, as of ALICE (Pillai et al., OSDI 2014): names of a directory are as they were at any time since its
last sync, renames are whole, and contents that were not synced are gone, cut off, or there. All that was not synced is
lost, or all but one thing, or one thing alone.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import shutil
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.chmod", "os.chown", "os.setxattr"}
#: An inode: its number, and how many had the number before.
Inode = tuple[int, int]
_NEVER = -1


def path_of(given: Any) -> str:
    """The path of an audit event, which has a descriptor where the program gave one."""
    return os.readlink(f"/proc/self/fd/{given}") if isinstance(given, int) else str(given)


class Meta(NamedTuple):
    """What an inode is, apart from the names in a directory."""

    kind: int
    mode: int
    owner: tuple[int, int]
    attributes: tuple[tuple[str, bytes], ...]
    modified: int
    content: Any


class Snapshot(NamedTuple):
    """The folder at one moment. names: of each directory. metas: of each inode. root: the folder's own inode."""

    root: Inode
    names: dict[Inode, dict[str, Inode]]
    metas: dict[Inode, Meta]


class Moment(NamedTuple):
    """A snapshot, and since which moment each inode's content, or each directory's names, are on the disk."""

    now: Snapshot
    synced: dict[Inode, int]


class Recorder:
    """Records a folder while ``within`` is active, in this process. volatile: names of files that no disk holds."""

    def __init__(self, root: pathlib.Path, volatile: tuple[str, ...]) -> None:
        self._root = root
        self._volatile = volatile
        self._generation: dict[int, int] = {}
        self._there: set[int] = set()
        self._synced: dict[Inode, int] = {}
        self.moments: list[Moment] = []
        #: Renames from one directory to another: both, and the moment before.
        self.moves: list[tuple[Inode, Inode, int]] = []

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Record. An audit hook cannot be removed: for a process that ends soon."""
        fsync = os.fsync
        first = self._take()
        # What was there before is on the disk.
        self._synced.update(dict.fromkeys(first.metas, 0))
        self.moments[0] = Moment(first, dict(self._synced))
        active = [True]

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            if active[0] and (event in _CHANGES or (event == "open" and arguments[2] & _WRITES)):
                active[0] = False
                if path_of(arguments[0]).startswith(str(self._root)):
                    self._before(event, arguments)
                active[0] = True

        def synced(descriptor: int) -> None:
            active[0] = False
            self._take()
            status = os.fstat(descriptor)
            self._synced[status.st_ino, self._generation.get(status.st_ino, 0)] = len(self.moments) - 1
            self.moments[-1] = self.moments[-1]._replace(synced=dict(self._synced))
            active[0] = True

        os.fsync = synced
        sys.addaudithook(audit)
        try:
            yield
        finally:
            active[0] = False
            os.fsync = fsync
            self._take()

    def _before(self, event: str, arguments: tuple[Any, ...]) -> None:
        taken = self._take()
        if event == "os.rename":
            source, target = (os.stat(os.path.dirname(path)).st_ino for path in arguments[:2])
            if source != target:
                known = {inode[0]: inode for inode in taken.names}
                self.moves.append((known[source], known[target], len(self.moments) - 1))

    def _take(self) -> Snapshot:
        names: dict[Inode, dict[str, Inode]] = {}
        metas: dict[Inode, Meta] = {}
        paths: dict[Inode, str] = {}
        there = {os.lstat(self._root).st_ino}
        for directory, directories, files in os.walk(self._root):
            there |= {os.lstat(os.path.join(directory, name)).st_ino for name in (*directories, *files)}
        for number in there - self._there:
            self._generation[number] = self._generation.get(number, -1) + 1
            self._synced.pop((number, self._generation[number]), None)
        self._there = there
        pending = [str(self._root)]
        root = self._inode(os.lstat(self._root))
        while pending:
            path = pending.pop()
            status = os.lstat(path)
            inode = self._inode(status)
            paths[inode] = path
            metas[inode] = _meta(path, status)
            if stat.S_ISDIR(status.st_mode):
                below = [name for name in os.listdir(path) if name not in self._volatile]
                names[inode] = {name: self._inode(os.lstat(os.path.join(path, name))) for name in below}
                pending += [os.path.join(path, name) for name in below]
        snapshot = Snapshot(root, names, metas)
        self.moments.append(Moment(snapshot, dict(self._synced)))
        return snapshot

    def _inode(self, status: os.stat_result) -> Inode:
        return status.st_ino, self._generation.get(status.st_ino, 0)

    def states(self) -> Iterator[Snapshot]:
        """Each state that a power cut may leave, once."""
        seen = set()
        for number in range(len(self.moments)):
            for state in self._states_at(number):
                known = pickle.dumps((state.names, state.metas))
                if known not in seen:
                    seen.add(known)
                    yield state

    def _states_at(self, number: int) -> Iterator[Snapshot]:
        now, synced = self.moments[number]
        # How far back each may be: names of a directory, and contents.
        back = {inode: synced.get(inode, _NEVER) for inode in now.metas}
        unsynced = [inode for inode in now.metas if self._differs(inode, back[inode], number)]
        current = dict.fromkeys(now.metas, number)
        choices = [current, {**current, **{inode: back[inode] for inode in unsynced}}]
        for inode in unsynced:
            choices.append({**current, inode: back[inode]})
            choices.append({**choices[1], inode: number})
            # Names as they were at any time since.
            if inode in now.names:
                choices += [{**current, inode: between} for between in range(max(back[inode], 0), number)]
        for choice in choices:
            if all((choice.get(a, number) > moved) == (choice.get(b, number) > moved) for a, b, moved in self.moves):
                yield from self._made(choice, now, number)

    def _differs(self, inode: Inode, then: int, number: int) -> bool:
        if then == _NEVER:
            return True
        before, now = self.moments[then].now, self.moments[number].now
        if inode in now.names:
            return before.names.get(inode) != now.names[inode]
        return before.metas.get(inode) != now.metas[inode]

    def _made(self, choice: dict[Inode, int], now: Snapshot, number: int) -> Iterator[Snapshot]:
        metas = dict(now.metas)
        names: dict[Inode, dict[str, Inode]] = {}
        torn = {}
        for inode in choice:
            then = choice[inode]
            before = self.moments[then].now if then != _NEVER else None
            if inode in now.names:
                names[inode] = dict(before.names.get(inode, {})) if before else {}
            elif stat.S_ISREG(metas[inode].kind) and then != number:
                # It has a name, and nothing in it yet.
                meta = before.metas.get(inode) if before else None
                metas[inode] = meta or metas[inode]._replace(content=b"")
                torn[inode] = metas[inode]._replace(content=_torn(metas[inode].content, now.metas[inode].content))
        for inode in [inode for listed in names.values() for inode in listed.values() if inode not in metas]:
            # It was removed, and its name is still there.
            self._bring_back(inode, names, metas, number)
        yield Snapshot(now.root, names, metas)
        if torn:
            yield Snapshot(now.root, names, {**metas, **torn})

    def _bring_back(
        self, inode: Inode, names: dict[Inode, dict[str, Inode]], metas: dict[Inode, Meta], number: int
    ) -> None:
        last = next(moment.now for moment in reversed(self.moments[:number]) if inode in moment.now.metas)
        metas[inode] = last.metas[inode]
        if inode in last.names:
            # A directory is removed when it is empty.
            names[inode] = {}


def recorded(root: pathlib.Path, do: Callable[[], Any], volatile: tuple[str, ...] = ()) -> list[Snapshot]:
    """The states that a power cut may leave at any time while ``do`` works, in a process of its own, on ``root``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            recorder = Recorder(root, volatile)
            with recorder.within():
                do()
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(list(recorder.states()), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    states = pickle.loads(content)  # noqa: S301 (our own child wrote it)
    assert isinstance(states, list)
    return states


def put(state: Snapshot, root: pathlib.Path, volatile: tuple[str, ...] = ()) -> None:
    """Make the folder what the state says; volatile files stay."""
    for path in root.iterdir():
        if path.name in volatile:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    _put(state, state.root, str(root))


def _put(state: Snapshot, inode: Inode, path: str) -> None:
    meta = state.metas[inode]
    if stat.S_ISLNK(meta.kind):
        os.symlink(meta.content, path)
        return
    if stat.S_ISDIR(meta.kind):
        os.makedirs(path, exist_ok=True)
        for name, below in state.names[inode].items():
            _put(state, below, os.path.join(path, name))
    else:
        with open(path, "wb") as file:
            file.write(meta.content)
        for name, value in meta.attributes:
            os.setxattr(path, name, value)
    os.chown(path, *meta.owner)
    os.chmod(path, meta.mode)
    os.utime(path, ns=(meta.modified, meta.modified))


def _torn(before: bytes, after: bytes) -> bytes:
    """Contents of which the first half of what changed was written."""
    shorter = min(len(before), len(after))
    same = next((place for place in range(shorter) if before[place] != after[place]), shorter)
    middle = (same + len(after.rstrip(b"\0"))) // 2
    return after[:middle] + before[middle:]


def _meta(path: str, status: os.stat_result) -> Meta:
    kind = stat.S_IFMT(status.st_mode)
    content: Any = None
    attributes: tuple[tuple[str, bytes], ...] = ()
    if stat.S_ISLNK(kind):
        content = os.readlink(path)
    elif stat.S_ISREG(kind):
        content = pathlib.Path(path).read_bytes()
        attributes = tuple((name, os.getxattr(path, name)) for name in sorted(os.listxattr(path)))
    modified = 0 if stat.S_ISDIR(kind) else status.st_mtime_ns
    return Meta(kind, stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid), attributes, modified, content)
