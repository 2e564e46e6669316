"""Locks whose file goes, and that other processes hold."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import kernel_lock
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import lock_holders
from real_processes import as_root

NOBODY = 65534
USER = pwd.getpwuid(NOBODY).pw_name
# It prints the line when it already is the program that is named, and then waits, because nobody reads more.
HOLD = ["yes", "locked"]


@contextlib.contextmanager
def locked_by(command, **options):
    """A process that holds a lock until the block ends. command: prints a line when it holds the lock."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **options) as process:
        try:
            assert process.stdout.readline() == "locked\n"
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def users(path):
    return locked_by(["flock", "--shared", "--no-fork", path, *HOLD], user=NOBODY, group=NOBODY)


def roots(path):
    return locked_by(["flock", "--shared", "--no-fork", path, *HOLD])


@pytest.fixture
def directory():
    """A directory that everybody can open."""
    with contextlib.ExitStack() as stack:
        path = pathlib.Path(tempfile.mkdtemp(prefix="locked-"))
        stack.callback(shutil.rmtree, path)
        path.chmod(0o755)
        yield path


def test_who_waited_has_the_file_that_others_open(tmp_path):
    path, same = str(tmp_path / "lock"), []

    def wait():
        with kernel_lock.locked(path) as file:
            same.append(os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(file.fileno())))

    with kernel_lock.locked(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        # Until it has opened the file; who opens it later only makes the test weaker.
        waiting.join(0.3)
        os.unlink(path)
    waiting.join(10)
    assert same == [True]


@as_root
def test_a_lock_of_another_user_is_an_error_that_names_the_process(directory, monkeypatch):
    monkeypatch.setattr(kernel_lock, "_FIRST_LOOK", 0)
    with users(directory) as process, pytest.raises(BlockingIOError) as error:
        kernel_lock.taken(str(directory), os.O_RDONLY | os.O_DIRECTORY)
    assert ledgers.sentence(error.value) == (
        f"{directory}: it is locked by process {process.pid} (yes locked, user {USER}): end what holds the lock, e.g. "
        f"kill {process.pid}"
    )


@as_root
def test_a_lock_of_root_is_waited_for_until_the_limit(directory, monkeypatch):
    """An older release's module may hold it. The holder's file may have come from a process that has ended."""
    monkeypatch.setattr(kernel_lock, "_FIRST_LOOK", 0)
    with roots(directory) as process:
        tries = iter(range(3))
        # The third pause is the last one.
        monkeypatch.setattr(
            kernel_lock, "time", types.SimpleNamespace(monotonic=time.monotonic, sleep=lambda _seconds: next(tries))
        )
        with pytest.raises(StopIteration):
            kernel_lock.taken(str(directory), os.O_RDONLY)
        monkeypatch.setattr(kernel_lock, "LIMIT", 0.0)
        with pytest.raises(BlockingIOError, match=f"it is locked by process {process.pid} .yes locked, user root.: "):
            kernel_lock.taken(str(directory), os.O_RDONLY)


@as_root
def test_a_lock_that_a_process_has_inherited_is_its_own(directory):
    command = ["sh", "-c", 'exec 9<"$0"; flock 9; exec yes locked', directory]
    with locked_by(command) as process:
        (holder,) = lock_holders.holders(str(directory))
        assert (holder.pid, holder.is_ours) == (process.pid, True)
    assert lock_holders.holders(str(directory)) == []
    assert lock_holders.named([]) == "a process that /proc does not show"


def test_only_locks_of_the_same_file_count(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).touch()
    with open(tmp_path / "one") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert [each.pid for each in lock_holders.holders(str(tmp_path / "one"))] == [os.getpid()]
        assert lock_holders.holders(str(tmp_path / "two")) == lock_holders.holders(str(tmp_path / "none")) == []


def test_a_hostile_command_line_is_one_short_text(tmp_path):
    (tmp_path / "file").touch()
    lock = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, 2); print('locked', flush=True)"
    lock += "; time.sleep(60)"
    with locked_by([sys.executable, "-c", lock, tmp_path / "file", "\x1b[2J\n" * 5000]):
        (holder,) = lock_holders.holders(str(tmp_path / "file"))
    assert len(holder.command) <= 80
    assert holder.command.isprintable()


def test_the_ledgers_directory_is_ourss_alone(tmp_path):
    """An earlier release created it for all users, who could lock it."""
    path = tmp_path / "lib/node-devices"
    for mode in (None, 0o755):
        if mode:
            path.mkdir()
            path.chmod(mode)
        with ledgers.Ledger(str(path)) as ledger:
            assert path.stat().st_mode & 0o777 == 0o700
            assert path.parent.stat().st_mode & 0o777 == 0o755
            # The lock is on the directory, as in every earlier release.
            tried = os.open(path, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(tried, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(tried)
            assert ledger.entries == {}
        assert not path.exists()
