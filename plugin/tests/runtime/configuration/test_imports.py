"""The files that a containerd configuration imports, as containerd 1.7 and 2 read them."""

from __future__ import annotations

import os

import pytest

from node_device_plugin.runtime.configuration.containerd_imports import Imports, read


@pytest.fixture
def imports(tmp_path):
    """Reads the imports of files, of which the first is the root file; in its answer, paths are relative."""

    def read_of(files, links=()):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        for name, target in dict(links).items():
            (tmp_path / name).symlink_to(target)
        root = tmp_path / next(iter(files))
        found = read({"path": str(root), "content": root.read_text()})
        return Imports(
            {os.path.relpath(path, tmp_path): text for path, text in found.texts.items()},
            [os.path.relpath(path, tmp_path) for path in found.links],
            [os.path.relpath(path, tmp_path) for path in found.unreadable],
            [(*(os.path.relpath(path, tmp_path) for path in each[:2]), *each[2:]) for each in found.missing],
        )

    return read_of


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.toml", [".hidden.toml", "9-x.toml", "a.toml"]),
        ("[0-9]*.toml", ["9-x.toml"]),
        ("[^a]*.toml", [".hidden.toml", "9-x.toml"]),
        ("a.toml", ["a.toml"]),
        # Without a star it is a name.
        ("?.toml", []),
    ],
)
@pytest.mark.parametrize("directory", ["conf.d", "{top}/conf.d"])
def test_patterns_match_as_containerds_do(imports, tmp_path, directory, pattern, names):
    files = {f"conf.d/{name}": "x = 1\n" for name in ("a.toml", "9-x.toml", ".hidden.toml", "a.conf", "more/a.toml")}
    root = f"imports = ['{directory.format(top=tmp_path)}/{pattern}']\n"
    assert list(imports({"config.toml": root, **files}).texts) == [f"conf.d/{name}" for name in names]


@pytest.mark.parametrize("directory", ["conf.?", "conf.[d]", "conf.[^e]", "con*"])
def test_a_pattern_may_stand_for_directories_too(imports, directory):
    found = imports({"config.toml": f"imports = ['{directory}/*.toml']\n", "conf.d/a.toml": "", "conf.e": ""})
    assert found.texts == {"conf.d/a.toml": ""}


@pytest.mark.parametrize(
    "text", ["", "version = 2\n", "# imports = ['a.toml']\n", "imports = []\n", "imports = 'a.toml'\n"]
)
def test_a_file_without_imports(imports, text):
    assert imports({"config.toml": text, "a.toml": ""}) == ({}, [], [], [])


def test_a_missing_root_file_has_no_imports():
    assert read({"path": "/nowhere/config.toml", "content": None}) == ({}, [], [], [])


def test_what_an_import_imports_is_read_from_its_own_directory_after_the_roots_imports(imports):
    files = {
        "config.toml": 'imports = ["conf.d/*.toml", "config.toml", "conf.d/a.toml", "z.toml"]\n',
        "conf.d/a.toml": 'imports = ["../more/*.toml"]\n',
        # Round and round.
        "more/b.toml": 'imports = ["../conf.d/a.toml", "../config.toml"]\n',
        "z.toml": "x = 1\n",
    }
    found = imports(files)
    assert list(found.texts.items()) == [(name, files[name]) for name in ("conf.d/a.toml", "z.toml", "more/b.toml")]
    assert found[1:] == ([], [], [])


def test_a_root_file_behind_a_link_is_not_its_own_import(tmp_path):
    real, link = tmp_path / "srv/real.toml", tmp_path / "config.toml"
    real.parent.mkdir()
    real.write_text("imports = ['srv/*.toml']\n")
    link.symlink_to(real)
    assert read({"path": str(link), "content": real.read_text()}) == ({}, [], [], [])


def test_imports_without_which_containerd_does_not_start(imports):
    """Patterns also match directories and links to nothing, and no daemon starts with them."""
    files = {
        "config.toml": 'imports = ["conf.d/*.toml", "gone.toml", "conf.d/a.toml", "conf.d"]\n',
        "conf.d/a.toml": 'imports = ["gone.toml", "gone.toml", "*.toml"]\n',
        "conf.d/b.toml/c": "",
    }
    no_file = ("not a file", "remove it from imports, or create the file")
    directory, dangling = ("a directory", "remove it"), ("a dangling link", "remove it, or create the file")
    found = imports(files, {"conf.d/link.toml": "nothing", "conf.d/other.toml": "a.toml"})
    assert found.missing == [
        ("config.toml", "gone.toml", *no_file),
        ("config.toml", "conf.d", *no_file),
        ("config.toml", "conf.d/b.toml", *directory),
        ("config.toml", "conf.d/link.toml", *dangling),
        ("conf.d/a.toml", "conf.d/gone.toml", *no_file),
        ("conf.d/a.toml", "conf.d/b.toml", *directory),
        ("conf.d/a.toml", "conf.d/link.toml", *dangling),
        ("conf.d/other.toml", "conf.d/gone.toml", *no_file),
        ("conf.d/other.toml", "conf.d/b.toml", *directory),
        ("conf.d/other.toml", "conf.d/link.toml", *dangling),
    ]
    assert (found.links, found.unreadable) == (["conf.d/other.toml"], [])


def test_an_import_that_containerd_refuses_is_read_all_the_same(imports):
    files = {"config.toml": 'imports = ["*/*.toml"]\n', "conf.d/a.toml": "version = \n", "conf.d/b.toml": b"# \xe9\n"}
    found = imports(files)
    assert (found.texts, found.unreadable) == ({"conf.d/a.toml": "version = \n"}, ["conf.d/b.toml"])
