"""For every suite: short paths, forks that end, and an error for each skip that tests/skips.yml does not list."""

from __future__ import annotations

import ctypes
import fnmatch
import gc
import os
import pathlib
import shutil
import signal
import tempfile

import pytest
import yaml

_LIST = pathlib.Path(__file__).parent / "tests" / "skips.yml"


def _is_listed(test, reason):
    return any(
        fnmatch.fnmatch(test, entry["test"]) and fnmatch.fnmatch(reason, entry["says"])
        for entry in yaml.safe_load(_LIST.read_text(encoding="utf-8"))
        if "test" in entry
    )


class _Skips:
    def __init__(self):
        self.unlisted = []

    def look_at(self, report):
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason[len("Skipped: ") :] if reason.startswith("Skipped: ") else reason
        if not _is_listed(report.nodeid, reason):
            self.unlisted.append("%s: %s" % (report.nodeid, reason))

    pytest_runtest_logreport = look_at
    pytest_collectreport = look_at

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self.unlisted and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for each in self.unlisted:
            terminalreporter.write_line("skipped, and not listed in tests/skips.yml: %s" % each, red=True)


_PR_SET_PDEATHSIG = 1


def _in_a_fork():
    # In the child, the collector would destroy gRPC objects of earlier tests, and wait for threads that ended.
    gc.freeze()
    # If a fork hangs, it ends with its test process; otherwise it would keep the pipe open that `make` reads.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def pytest_configure(config):
    os.register_at_fork(after_in_child=_in_a_fork)
    # With pytest-xdist, the workers send their reports to the controller, which alone decides.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Skips(), "listed-skips")


@pytest.fixture
def short_path():
    """A directory for one test, with a path short enough for a socket's name (107 bytes in all)."""
    path = tempfile.mkdtemp(prefix="ndp-")
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)
