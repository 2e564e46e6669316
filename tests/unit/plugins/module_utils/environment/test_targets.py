"""Which target of the table a machine chooses."""

from __future__ import annotations

import platform
import sys

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment import targets
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import VersionError

TABLE = {"cp39-x86_64": {"glibc": [2, 17]}, "cp313-aarch64": {"glibc": [2, 17]}}


@pytest.mark.parametrize(
    ("python", "machine", "libc", "chosen"),
    [
        ([3, 9, 2], "x86_64", "glibc 2.17", "cp39-x86_64"),
        ([3, 9, 2], "x86_64", "glibc 2.17.1", "cp39-x86_64"),
        ([3, 13, 0], "aarch64", "glibc 2.999", "cp313-aarch64"),
        ([3, 13, 0], "aarch64", "glibc 3.0", "cp313-aarch64"),
    ],
)
def test_the_target_of_a_machine(python, machine, libc, chosen):
    assert targets.choose(TABLE, python, machine, libc) == chosen


@pytest.mark.parametrize(
    ("python", "machine", "libc", "says"),
    [
        ([3, 9, 2], "x86_64", "", "the node's C library is not glibc, but the plugin's wheels need glibc: use a "),
        ([3, 9, 2], "x86_64", "musl", "the node's C library is musl, but "),
        (
            [3, 9, 2],
            "x86_64",
            "glibc 2.16",
            "glibc 2.16, but the plugin's wheels need glibc 2.17 or later: use a later",
        ),
        ([3, 9, 2], "x86_64", "glibc 1.99", "glibc 1.99, but the plugin's wheels need glibc 2.17 or later"),
        ([3, 15, 0], "x86_64", "glibc 2.41", r"\(cp315-x86_64\), only for cp313-aarch64, cp39-x86_64: set "),
        ([3, 9, 2], "riscv64", "glibc 2.41", r"\(cp39-riscv64\)"),
    ],
)
def test_a_machine_without_wheels(python, machine, libc, says):
    with pytest.raises(VersionError, match=says):
        targets.choose(TABLE, python, machine, libc)


@pytest.mark.parametrize("libc", ["glibc ", "glibc 2", "glibc -2.3", "glibc 2.٣"])
def test_what_is_no_version_of_glibc(libc):
    with pytest.raises(VersionError, match=f"the node's C library is {libc}, but the plugin's wheels need glibc: use"):
        targets.choose(TABLE, [3, 9, 2], "x86_64", libc)


def test_a_node_chooses_for_its_own_python(monkeypatch):
    monkeypatch.setattr(targets, "libc", lambda: "glibc 2.36")
    mine = "cp%d%d-%s" % (*sys.version_info[:2], platform.machine())
    assert targets.own({mine: {"glibc": [2, 17]}}) == mine


def test_the_c_library(monkeypatch):
    def fail(_name):
        raise ValueError

    monkeypatch.setattr("os.confstr", lambda name: {"CS_GNU_LIBC_VERSION": "glibc 2.41"}[name])
    assert targets.libc() == "glibc 2.41"
    monkeypatch.setattr("os.confstr", fail)
    assert targets.libc() == ""
