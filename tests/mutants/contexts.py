"""A pytest plugin: coverage knows each line by the tests that ran it, and which tests passed in how many seconds."""

from __future__ import annotations

import collections
import json
import os
import pathlib

import coverage
import pytest

_seconds: dict[str, float] = collections.defaultdict(float)
_failed: set[str] = set()


def pytest_runtest_logstart(nodeid: str) -> None:
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        passed = {test: seconds for test, seconds in _seconds.items() if test not in _failed}
        pathlib.Path(os.environ["MUTANTS_TESTS"]).write_text(json.dumps(passed))
