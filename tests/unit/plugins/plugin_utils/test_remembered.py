"""What one task of a run has made is there for the tasks of other hosts, which are other processes."""

from __future__ import annotations

import multiprocessing
import os

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.remembered import file_of, remembered


def test_a_text_is_made_once(tmp_path):
    made = []

    def make():
        made.append(1)
        return "ä\r\n"

    assert [remembered(make, "a"), remembered(make, "a"), len(made)] == ["ä\r\n", "ä\r\n", 1]
    assert remembered(lambda: "another", "a", "b") == "another"
    # No file of a process that was slower is left.
    assert sorted(tmp_path.iterdir()) == sorted((file_of("a"), file_of("a", "b")))


def test_a_fork_has_it_too(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=remembered, args=(lambda: str(os.getpid()), "a"))
    process.start()
    process.join()
    assert remembered(lambda: "made again", "a") == str(process.pid)


def test_a_failure_is_not_remembered(tmp_path):
    def fail():
        raise LookupError

    with pytest.raises(LookupError):
        remembered(fail, "a")
    assert remembered(lambda: "made", "a") == "made"
