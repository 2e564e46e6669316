"""What stands in the way of a node's runtime, in one sentence each."""

from __future__ import annotations

import copy

import pytest

from node_device_plugin.runtime.configuration import obstacles

GOOD = {
    "runtime": {
        "socket": "/run/containerd/containerd.sock",
        "name": "containerd",
        "executable": "/usr/bin/containerd",
        "version": "1.7.2",
        "config": {"path": "/etc/containerd/config.toml", "exists": False, "content": None},
    },
}


def runtime(**changes):
    changed = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *directories, key = path.split("__")
        place = changed
        for directory in directories:
            place = place[directory]
        place[key] = value
    return changed["runtime"]


def test_nothing_stands_in_the_way():
    assert list(obstacles(runtime(), cdi=True)) == []


@pytest.mark.parametrize(
    ("changes", "beginning"),
    [
        (
            {"runtime": {"socket": "/run/x.sock", "problem": "no such file or directory"}},
            "no container runtime answers at /run/x.sock (no such file or directory): install",
        ),
        (
            {"runtime__name": "frakti", "runtime__executable": "/usr/bin/frakti"},
            "the container runtime at /run/containerd/containerd.sock is /usr/bin/frakti: only containerd and CRI-O",
        ),
        ({"runtime__version": "1.6.20~ds1"}, "containerd 1.6.20~ds1 silently drops the kubelet's CDI device names"),
        ({"runtime__version": "1.7.1"}, "containerd 1.7.1 silently drops"),
        ({"runtime__version": None}, "/usr/bin/containerd --version prints no version"),
        (
            {"runtime__config": {"path": "/etc/c.toml", "exists": True, "content": 'disabled_plugins = ["cri"]'}},
            "/etc/c.toml disables CRI (disabled_plugins has cri)",
        ),
        (
            {"runtime__config": {"path": "/etc/c.toml", "exists": True, "content": "a = 1\n[x\n", "effective": None}},
            "/etc/c.toml is not valid TOML (",
        ),
        (
            {"runtime__config": {"path": "/etc/c.toml", "exists": True, "content": "\ufeffversion = 2\n"}},
            "/etc/c.toml is not valid TOML (it begins with a byte order mark), so containerd cannot start again: fix "
            "the file first",
        ),
        (
            {"runtime__config": {"path": "/etc/c.toml", "exists": True, "content": None, "why_no_text": "it is x"}},
            "/etc/c.toml cannot be read as text, because it is x: fix the file first",
        ),
        (
            {"runtime__config__path": "/etc/c.toml", "runtime__config__is_given": True},
            "/etc/c.toml does not exist, so containerd cannot start again: create it, or remove --config",
        ),
        # A key may be a URL with credentials.
        (
            {
                "runtime__config": {
                    "path": "/etc/c.toml",
                    "exists": True,
                    "content": "a.'x://u:p4ss@h' = 1\na.'x://u:p4ss@h' = 1",
                }
            },
            "/etc/c.toml is not valid TOML (Cannot overwrite a value (at ",
        ),
    ],
)
def test_one_sentence(changes, beginning):
    (sentence,) = obstacles(runtime(**changes), cdi=True)
    assert sentence.startswith(beginning)
    assert "p4ss" not in sentence


def test_without_cdi_old_versions_will_do():
    old = runtime(runtime__version="1.6.20~ds1")
    assert len(list(obstacles(old, cdi=True))) == 1
    assert list(obstacles(old, cdi=False)) == []
