"""The runtime's program reads copies of the new texts, which only root can read and which do not stay."""

from __future__ import annotations

import errno
import os
import pathlib
import re
import tempfile

import pytest

from node_device_plugin.runtime import configuration
from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig

#: Says who may read the copy and the absolute path in it, where they are, and what is in them.
READER = """\
stat -c %a "$2"; echo "$2"; dirname "$2"; cat "$2"
imported=$(sed -n 's|.*"\\(/.*\\)".*|\\1|p' "$2")
[ ! -f "$imported" ] || { stat -c %a "$imported"; cat "$imported"; }
"""


def made(path, script):
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return str(path)


def containerd(directory, script):
    program = made(directory / "my-containerd", script)
    return configuration.Containerd({"executable": program, "config": {"path": str(directory / "config.toml")}})


def crio(directory, script, exists):
    drop_ins = f"{directory}/crio.conf.d"
    config = {"path": "/etc/crio/crio.conf", "exists": exists, "drop_in_directory": drop_ins}
    config["files"] = {f"{drop_ins}/99-node-devices.conf": "former\n", f"{drop_ins}/more/a": "theirs\n"}
    return configuration.Crio({"executable": made(directory / "my-crio", script), "config": config})


def test_containerd_reads_copies_of_the_root_file_and_of_a_drop_in(tmp_path):
    adapter = containerd(tmp_path, READER)
    lines = adapter.effective_with('imports = ["a.toml",\n"/{drop_in}"]\n', "drop-in\n").splitlines()
    # The copy's name is the file's to the adapters. Relative imports need the directory.
    path = str(tmp_path / "config.toml")
    assert lines[:4] + lines[5:] == ["600", path, str(tmp_path), 'imports = ["a.toml",', "600", "drop-in"]
    assert not os.path.exists(lines[4].strip('"]'))
    assert [each.name for each in tmp_path.iterdir()] == ["my-containerd"]
    for text in ('imports = ["/conf.d/*.toml"]\n', "version = 2\n"):
        assert adapter.effective_with(text).splitlines()[1:3] == [path, tempfile.gettempdir()]


def test_the_copy_has_every_byte_of_the_text(tmp_path):
    assert containerd(tmp_path, 'cat "$2"\n').effective_with("version = 2\r\n# \u00e9\n") == "version = 2\r\n# \u00e9\n"


def test_what_containerd_says_of_a_text_has_no_secret(tmp_path):
    adapter = containerd(tmp_path, 'echo "my-containerd, $0: $2: s3cret is no key" >&2\nexit 1\n')
    program, path = tmp_path / "my-containerd", tmp_path / "config.toml"
    words = f"{program} rejects the new configuration: my-containerd, {program}: {path}: (hidden) is no key"
    with pytest.raises(UnsupportedConfig, match=f"^{re.escape(words)}$"):
        adapter.effective_with('imports = ["a.toml"]\npassword = "s3cret"\n')
    assert [each.name for each in tmp_path.iterdir()] == ["my-containerd"]


@pytest.mark.parametrize("exists", [True, False])
def test_crio_reads_a_copy_of_its_drop_ins_with_the_new_one(tmp_path, exists):
    """Without its root file where that is not there: packages since 1.30 have drop-ins alone."""
    script = (
        'while [ "$1" != --config-dir ]; do echo "$1"; shift; done\n'
        'echo "$2/99-node-devices.conf"; cat "$2/more/a" "$2/99-node-devices.conf"\n'
        'stat -c %a "$2"; echo "$2"; echo "$3"\n'
    )
    path = f"{tmp_path}/crio.conf.d/99-node-devices.conf"
    *lines, copy, last = crio(tmp_path, script, exists).effective_with(path, "ours\n").splitlines()
    assert lines == [*(["--config", "/etc/crio/crio.conf"] if exists else []), path, "theirs", "ours", "700"]
    assert last == "config"
    assert not os.path.exists(copy)
    assert [each.name for each in tmp_path.iterdir()] == ["my-crio"]


def test_what_crio_says_of_a_drop_in_names_the_drop_in(tmp_path):
    path = f"{tmp_path}/crio.conf.d/99-node-devices.conf"
    adapter = crio(tmp_path, 'echo "$2/99-node-devices.conf is wrong: s3cret" >&2; exit 1\n', exists=False)
    words = f"{tmp_path}/my-crio rejects the new configuration: {path} is wrong: (hidden)"
    with pytest.raises(UnsupportedConfig, match=f"^{re.escape(words)}$"):
        adapter.effective_with(path, "s3cret\n")


def test_an_error_of_the_disk_names_the_copy(tmp_path, monkeypatch):
    full = tmp_path / "full"
    full.touch()
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_options: (os.open("/dev/full", os.O_WRONLY), str(full)))
    with pytest.raises(OSError, match="No space left") as refused:
        containerd(tmp_path, "").effective_with("version = 2\n", "drop-in\n")
    assert refused.value.filename == str(full)
    assert not full.exists()

    def write_bytes(_path, _content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pathlib.Path, "write_bytes", write_bytes)
    with pytest.raises(OSError, match="No space left") as refused:
        crio(tmp_path, "", exists=False).effective_with(f"{tmp_path}/crio.conf.d/99-node-devices.conf", "ours\n")
    assert refused.value.filename.startswith(f"{tempfile.gettempdir()}/node-devices.")
