"""What a diff shows of a runtime's file: our lines, and of the others only that they changed."""

from __future__ import annotations

import pytest

from node_device_plugin.runtime.configuration.cdi import Change
from node_device_plugin.runtime.configuration.diff import added, diff, shown


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("  enable_cdi = false # password", "  enable_cdi = false # (hidden)"),
        ("enable_cdi=true\r\n", "enable_cdi=true"),
        ('[plugins."io.containerd.grpc.v1.cri"]', '[plugins."io.containerd.grpc.v1.cri"]'),
        ("[plugins.cri]\n", "[plugins.cri]"),
        ("[crio.runtime]\n", "[crio.runtime]"),
        (
            "plugins.'io.containerd.cri.v1.runtime'.enable_cdi = true",
            "plugins.'io.containerd.cri.v1.runtime'.enable_cdi = true",
        ),
        ("cdi_spec_dirs = [\"/etc/cdi\", '/run/cdi']\n", "cdi_spec_dirs = [\"/etc/cdi\", '/run/cdi']"),
        ("  cdi_spec_dirs = [\n", "  cdi_spec_dirs = ["),
        ('    "/etc/cdi", # since 2021\n', '    "/etc/cdi", # (hidden)'),
        ("  ]\n", "  ]"),
        ("version = 2\n", "version = 2"),
        ("\n", ""),
        ("  # a secret\n", "# (hidden)"),
        ('password = "secret"\n', "(hidden)"),
        ('plugins = {"io.containerd.grpc.v1.cri" = {enable_cdi = true, a = "secret"}}', "(hidden)"),
        ("[plugins.cri.registry]", "(hidden)"),
        ('"secret"', "(hidden)"),
        ('cdi_spec_dirs = ["secret"]', "(hidden)"),
        ('enable_cdi = true, x = "secret"', "(hidden)"),
        ('enable_cdi = "secret"', "(hidden)"),
        ('version = "secret"', "(hidden)"),
    ],
)
def test_a_line(line, ours):
    assert shown(line) == ours


def test_a_change():
    before = 'version = 2\n[plugins.cri]\npassword = "secret"\n'
    change = Change("/c.toml", before, before.replace("cri]\n", "cri]\nenable_cdi = true\n"))
    assert diff(change) == "--- before: /c.toml\n+++ after: /c.toml\n@@ -2,0 +3 @@\n+enable_cdi = true\n"
    assert added(change) == ["enable_cdi = true"]
    gone = Change("/c.toml", "enable_cdi = true # secret", None)
    assert diff(gone) == "--- before: /c.toml\n+++ after: /c.toml\n@@ -1 +0,0 @@\n-enable_cdi = true # (hidden)\n"
    assert added(gone) == []
