"""What a runtime's messages and log show: the problem, and nothing that its configuration may hold.

The messages are of containerd 1.7.24 (Debian 13), started with such configurations.
"""

from __future__ import annotations

import pytest

from node_device_plugin.support import safe_words

PLUGIN = 'level=warning msg="failed to load plugin io.containerd.grpc.v1.cri"'
TIME = 'time="2026-11-26T03:27:27.360230545Z" '


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "containerd: (7, 3): Can't convert S3cret(string) to bool",
            "containerd: (7, 3): Can't convert (hidden)(string) to bool",
        ),
        (
            "containerd: failed to load TOML: /etc/c.toml: (11, 16): no value can start with S",
            "containerd: failed to load TOML: /etc/c.toml: (11, 16): no value can start with (hidden)",
        ),
        (
            "containerd: failed to load TOML: /etc/c.toml: (16, 2): duplicated tables",
            "containerd: failed to load TOML: /etc/c.toml: (16, 2): duplicated tables",
        ),
        (
            'containerd: invalid disabled plugin URI "S3cret" expect io.containerd.x.vx',
            'containerd: invalid disabled plugin URI "(hidden)" expect io.containerd.x.vx',
        ),
        # What it escapes, and a value of several words.
        (r'error="failed to find \"S3\\\"c ret\\x00 p\u00e4ss\""', 'error="failed to find \\"(hidden)\\""'),
        ('parse "https://bob:S3cret@reg.example.com": x-key=abc/DEF+123456==', 'parse "(hidden)'),
        ("open /etc/S3cret: no such file or directory", "open (hidden): no such file or directory"),
        # A secret that begins like a path that the caller names.
        ("/etc/c.tomlS3cret is unknown", "/etc/c.toml(hidden) is unknown"),
        ("S3cret", "(hidden)"),
    ],
)
def test_a_message_keeps_its_known_words(said, shown):
    found = safe_words.message(said, ["/etc/c.toml", "containerd", ""])
    assert found is None or ("S3" not in found and "ret" not in found)
    assert found == shown if not str(shown).startswith("parse") else found.startswith(shown)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            f'{TIME}{PLUGIN} error="invalid plugin config: `mirrors` cannot be set when `config_path` is provided"',
            f'{PLUGIN} error="invalid plugin config: `mirrors` cannot be set when `config_path` is provided"',
        ),
        (
            f'{TIME}{PLUGIN} error="failed to create CRI service: failed to find snapshotter \\"S3cret\\""',
            f'{PLUGIN} error="failed to create CRI service: failed to find snapshotter \\"(hidden)\\""',
        ),
        # Its configuration as containerd 1.7 logs it at each start.
        (
            f'{TIME}level=info msg="Start cri plugin with config {{PluginConfig:{{Registry:{{Configs:map[reg.example:{{'
            'Auth:0xc0003}}] Headers:map[X-Strange:[Bearer S3cret]]}}}}"',
            "",
        ),
        (f'{TIME}level=debug msg="invalid S3cret"', ""),
        ("goroutine 22 [running]:", ""),
        ("\tgithub.com/containerd/containerd/plugin/plugin.go:172 +0x1c5", ""),
        ("panic: plugin: no type", "panic: plugin: no type"),
        (
            "containerd.service: Main process exited, code=exited, status=1/FAILURE",
            "containerd.service: Main process exited, code=exited, status=1/FAILURE",
        ),
        ("S3cret S3cret", ""),
    ],
)
def test_a_log_shows_its_problems(line, shown):
    assert safe_words.lines(line + "\n", ["containerd.service"]) == shown


def test_a_log_shows_its_last_problems():
    log = "".join(f"failed to load {number}\n" for number in range(40))
    assert safe_words.lines(log).splitlines() == [f"failed to load {number}" for number in range(25, 40)]
