"""docs/cdi-by-hand.md prints what the role cdi_runtime writes, or tells the user to write."""

from __future__ import annotations

import tomllib

import pytest
import tomlkit
from documented_blocks import blocks, text_of

from node_device_plugin.runtime import configuration as runtimes
from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig
from node_device_plugin.runtime.configuration.containerd_imports import Imports

PAGE = text_of("docs/cdi-by-hand.md")
#: Each file that the page prints: path and text.
PRINTED = [
    (first.removeprefix("# "), text)
    for first, _, text in (block.text.partition("\n") for block in blocks(PAGE) if not block.language)
]
ROOT_FILE = "/etc/containerd/config.toml"
K3S = "/var/lib/rancher/k3s/agent/etc/containerd"
DIRS = 'cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
OFF_2 = f'[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n{DIRS}'
OFF_3 = f'[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n{DIRS}'
TEMPLATE = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_selinux = {{ .SELinux }}\n'
CRIO = '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n'


def adapter(name, version, dump, content="", path=ROOT_FILE, **config):
    config = {"path": path, "real_path": path, "exists": True, "content": content, "effective": dump, **config}
    executable = config.pop("executable", f"/usr/bin/{name}")
    config = {"files": {}, "drop_in_directory": "/etc/crio/crio.conf.d", "given_dirs": None, **config}
    return runtimes.of(
        {"name": name, "socket": "/run/x.sock", "executable": executable, "version": version, "config": config}
    )


def merging(dump, root_counts=True):
    """A containerd that merges the text into ``dump``. root_counts: whether no import overrides the file."""

    def effective_with(text, drop_in):
        data = tomllib.loads(dump)
        for table in tomllib.loads(drop_in or text)["plugins"].values() if drop_in or root_counts else ():
            for settings in data["plugins"].values():
                settings.update(table)
        return tomlkit.dumps(data)

    return effective_with


def written(name, version, dump, effective_with=None, **config):
    """Path and text that the role writes."""
    its_adapter = adapter(name, version, dump, **config)
    its_adapter.effective_with = effective_with or merging(dump)
    change = its_adapter.plan()
    return change.path, change.after


def test_the_page_prints_every_file():
    k3s = {"path": f"{K3S}/config.toml"}
    imports = {"content": 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'}
    generated = f'version = 3\nimports = ["{K3S}/config-v3.toml.d/*.toml"]\n'
    template = {"content": TEMPLATE.replace("{{ .SELinux }}", "false"), "files": {f"{K3S}/config.toml.tmpl": TEMPLATE}}
    by_role = [
        written("containerd", "1.7.24", OFF_2, content=None, exists=False),
        written("containerd", "2.1.4", OFF_3, content="version = 3\n"),
        written("containerd", "1.7.24", OFF_2, content="[plugins.cri]\n"),
        written("containerd", "2.1.4", OFF_3.replace(DIRS, 'cdi_spec_dirs = ["/opt/cdi"]\n'), content="version = 3\n"),
        written(
            "containerd",
            "2.1.4",
            OFF_3,
            merging(OFF_3, root_counts=False),
            imports=Imports({"/etc/containerd/conf.d/site.toml": f"version = 3\n{OFF_3}"}, [], [], []),
            **imports,
        ),
        written("containerd", "2.1.4-k3s1", OFF_3, content=generated, **k3s),
        written("containerd", "1.7.26-k3s1", OFF_2 + "enable_selinux = false\n", **template, **k3s),
        written("crio", "1.36.3", CRIO, lambda path, text: text),
    ]
    # The last two are files that the role does not write.
    for (path, text), (its_path, its_text) in zip(PRINTED[:-2], by_role, strict=True):
        assert path == its_path
        if path.endswith(".tmpl"):
            # A template is not TOML: the lines after the header.
            assert f"{text.splitlines()[0]}\n  {text.splitlines()[1]}\n" in its_text
        else:
            assert tomllib.loads(text) == tomllib.loads(its_text)


@pytest.mark.parametrize(
    ("printed", "version", "dump", "config"),
    [
        (PRINTED[-2], "1.7.27", OFF_2, {"executable": "/snap/microk8s/7000/bin/containerd"}),
        (
            PRINTED[-1],
            "2.3.4",
            OFF_3,
            {"path": "/etc/k0s/containerd.toml", "executable": "/var/lib/k0s/bin/containerd"},
        ),
    ],
)
def test_the_page_prints_what_a_message_says_to_write(printed, version, dump, config):
    (message,) = adapter("containerd", version, dump, **config).obstacles(True)
    with pytest.raises(UnsupportedConfig):
        adapter("containerd", version, dump, **config).plan()
    path, text = printed
    assert path in message
    for line in filter(None, text.splitlines()):
        assert line in message


def test_the_page_has_the_oldest_version_of_each_runtime():
    for name, version in (("containerd", "1.7.1"), ("crio", "1.27.9")):
        assert any("upgrade it to" in each for each in adapter(name, version, OFF_2).obstacles(True))
    for name, version in (("containerd", "1.7.2"), ("crio", "1.28.0")):
        assert list(adapter(name, version, OFF_2).obstacles(True)) == []
    assert "| containerd before 1.7.2, CRI-O before 1.28 |" in PAGE
