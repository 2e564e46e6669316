"""The edit of containerd's configuration: starting points as a table, each with the whole text that must come out."""

from __future__ import annotations

import json
import re

import pytest
import tomlkit

from node_device_plugin.runtime import configuration as runtimes
from node_device_plugin.runtime.configuration import containerd_config, containerd_imports
from node_device_plugin.runtime.configuration.cdi import Cdi, Change, UnsupportedConfig
from node_device_plugin.support.toml import tomllib

OFF = '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
ON = OFF.replace("false", "true")
OFF_2 = OFF.replace("grpc.v1.cri", "cri.v1.runtime")
MINIMAL = 'version = 2\n\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'

DEBIAN = """\
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""
KUBEADM = """\
# Written by hand.
version = 2
root = "/data/containerd" # a larger disk

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example.com/pause:3.9"   # ours
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
"""

# name: (what is there, what must come out)
EDITS = {
    "no file": (None, MINIMAL),
    "empty": ("", MINIMAL),
    "comments only": ("# docker.com\n# nothing here", "# docker.com\n# nothing here\n" + MINIMAL),
    # Some of Unicode's line ends, none of TOML's.
    "a comment with line separators": ("# one\u2028two\x85three", "# one\u2028two\x85three\n" + MINIMAL),
    "top-level keys without a version": (
        '# moved\nroot = "/data"\n\n[grpc]\naddress = "/run/x.sock"\n',
        '# moved\nversion = 2\nroot = "/data"\n\n[grpc]\naddress = "/run/x.sock"\n\n' + MINIMAL.partition("\n\n")[2],
    ),
    "no cri table": (
        'version = 2\n\n[debug]\nlevel = "info"\n',
        'version = 2\n\n[debug]\nlevel = "info"\n\n' + MINIMAL.partition("\n\n")[2],
    ),
    "no line end at the end": (
        'version = 2\n[debug]\nlevel = "info"',
        'version = 2\n[debug]\nlevel = "info"\n\n' + MINIMAL.partition("\n\n")[2],
    ),
    "turned off by somebody": (
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = false # no\nsandbox_image = 'x'\n",
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true # no\nsandbox_image = 'x'\n",
    ),
    "version 1": (
        "[plugins.cri]\n  sandbox_image = 'x'\n[plugins.linux]\n  shim_debug = true\n",
        "[plugins.cri]\n  enable_cdi = true\n  sandbox_image = 'x'\n[plugins.linux]\n  shim_debug = true\n",
    ),
    "version 1 that says so, without a cri table": (
        "version = 1\n\n[debug]\nlevel = 'info'\n",
        "version = 1\n\n[debug]\nlevel = 'info'\n\n[plugins.cri]\nenable_cdi = true\n",
    ),
    "version 1 with a later version's table, which 1.7 ignores": (
        "[plugins.cri]\n  sandbox_image = 'x'\n" + OFF,
        "[plugins.cri]\n  enable_cdi = true\n  sandbox_image = 'x'\n" + OFF,
    ),
    "Windows line ends": (
        "version = 2\r\n# x\r\n",
        "version = 2\r\n# x\r\n\r\n" + MINIMAL.partition("\n\n")[2].replace("\n", "\r\n"),
    ),
    "Debian's own": (
        DEBIAN,
        DEBIAN.replace(
            '.cri"]\n    [',
            '.cri"]\n    enable_cdi = true\n    [',
        ),
    ),
    "a kubeadm guide's": (
        KUBEADM,
        KUBEADM.replace(
            '.cri"]\n',
            '.cri"]\n  enable_cdi = true\n',
        ),
    ),
}


def of(content, dump, version):
    config = {"path": "/c.toml", "real_path": "/c.toml", "exists": content is not None, "content": content}
    runtime = {"socket": "/s", "name": "containerd", "executable": "/bin/containerd", "version": version}
    return runtimes.of({**runtime, "config": {**config, "effective": dump, "files": {}}})


def imports_of(texts, links=(), unreadable=(), missing=()):
    """What the adapter read of these imports."""
    return containerd_imports.Imports(texts, links, unreadable, missing)


def checked_by(adapter, dump):
    """The adapter, with a containerd that makes of every copy what it made of `dump`, with CDI on."""
    data = tomllib.loads(dump)
    for table in data["plugins"].values():
        table.update(enable_cdi=True, cdi_spec_dirs=["/etc/cdi", "/var/run/cdi"])
    adapter.effective_with = lambda text, drop_in: tomlkit.dumps(data)
    return adapter


def plan(content, dump, version):
    change = checked_by(of(content, dump, version), dump).plan()
    return change and change.after


def undo(later, before):
    return checked_by(of(later, ON, "1.7.24"), ON).undo("/c.toml", False, before).after


@pytest.mark.parametrize("name", EDITS)
def test_the_least_change(name):
    content, wanted = EDITS[name]
    assert plan(content, OFF, "1.7.24~ds1") == wanted


@pytest.mark.parametrize("name", EDITS)
def test_a_change_of_the_result_can_be_undone_by_key(name):
    content, edited = EDITS[name]
    later = edited + "# later\n"
    undone = tomllib.loads(undo(later, content))
    before = tomllib.loads(content or "")
    for table in ("io.containerd.grpc.v1.cri", "cri"):
        cri = before.get("plugins", {}).get(table, {})
        assert undone.get("plugins", {}).get(table, {}) == cri
    assert "# later" in undo(later, content)


@pytest.mark.parametrize(
    "content",
    [
        DEBIAN,
        'version = 2\nplugins = {"io.containerd.grpc.v1.cri" = {sandbox_image = "x"}}\n',
        'version = 2\nplugins = {"io.containerd.internal.v1.opt" = {path = "x"}}\n',
        'version = 2\nplugins."io.containerd.grpc.v1.cri".sandbox_image = "x"\n[debug]\nlevel = "info"\n',
        'version = 2\n[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "x"\n[debug]\nlevel = "info"\n'
        '[plugins."io.containerd.internal.v1.opt"]\npath = "x"\n',
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\n\n\n# end\n",
    ],
)
def test_nothing_but_the_keys_changes(content):
    before = tomllib.loads(content)
    edited = plan(content, OFF, "1.7.24")
    after = tomllib.loads(edited)
    cri = after["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri.pop("enable_cdi") is True
    before["plugins"].setdefault("io.containerd.grpc.v1.cri", {})
    assert after == before
    # And not a line is lost.
    assert [line for line in content.splitlines() if line not in edited and "plugins = {" not in line] == []


@pytest.mark.parametrize("version", ["", "version = 1\n"])
def test_a_file_of_version_1_has_the_table_edited_that_is_there(version):
    """containerd 2 merges two of them in random order; containerd 1.7 ignores the newer one."""
    content = version + OFF
    dump = OFF_2
    assert plan(content, dump, "2.3.7") == content.replace("false", "true")
    assert plan(version + OFF_2, dump, "2.3.7") == version + OFF_2.replace("false", "true")
    with pytest.raises(
        UnsupportedConfig, match=r"1\.7\.24 ignores its table \[plugins\..*\]: set version = 2 before the"
    ):
        plan(content, OFF, "1.7.24")


def test_a_difference_elsewhere_ends_it_before_anything_is_written():
    adapter = of("version = 2\n", OFF + 'sandbox_image = "ours"\n', "1.7.24")
    adapter.effective_with = lambda text, drop_in: ON + 'sandbox_image = "gone"\n'
    with pytest.raises(UnsupportedConfig, match=r"would also change plugins\..*\.sandbox_image in containerd"):
        adapter.plan()


def test_what_containerd_cannot_read_is_not_edited():
    adapter = of("version = 4\n", None, "2.1.9")
    adapter.config["problem"] = "expected containerd config version equal to or less than 3"
    with pytest.raises(UnsupportedConfig, match=r"config dump` fails \(expected containerd config version"):
        adapter.plan()


@pytest.mark.parametrize(
    ("problem", "texts", "fix"),
    [
        ("failed to unmarshal TOML: (2, 1)", {}, "fix the file first"),
        ("failed to unmarshal TOML: (2, 1)", {"/a.toml": ""}, "fix the file or one of its imports first"),
        ("failed to load TOML from /a.toml: x", {"/a.toml": ""}, "fix the file first"),
        ("failed to load TOML from /c.toml: x", {"/a.toml": ""}, "fix the file first"),
    ],
)
def test_a_failure_that_names_no_file_may_be_of_an_import(problem, texts, fix):
    adapter = of("version = 2\n", None, "2.1.9")
    adapter.config.update(problem=problem, imports=imports_of(texts))
    with pytest.raises(UnsupportedConfig, match=re.escape(f"fails ({problem}): {fix}")):
        adapter.plan()


def test_what_is_installed_but_does_not_run_is_restarted_first():
    adapter = of("version = 2\n", OFF, "1.7.24")
    adapter.runtime.update(installed_version="2.1.9", unit="containerd.service")
    with pytest.raises(
        UnsupportedConfig, match=r"1\.7\.24 runs, but /bin/containerd is now 2\.1\.9, .*: restart containerd\.service"
    ):
        adapter.plan()
    adapter.runtime["installed_version"] = "1.7.24"
    assert checked_by(adapter, OFF).plan()


def test_a_drop_in_that_is_a_link_is_named_and_left_alone():
    texts = {"/conf.d/99-site.toml": f"version = 2\n{CRI_2}\nenable_cdi = false\n"}
    root = 'version = 2\nimports = ["conf.d/*.toml"]\n'
    adapter, _asked = imported("1.7.24", root, texts, OFF, ON)
    assert adapter.plan().path == "/conf.d/99-site.toml"
    adapter.config["imports"] = imports_of(texts, links=list(texts))
    with pytest.raises(UnsupportedConfig, match=r"set enable_cdi = true in /conf\.d/99-site\.toml"):
        adapter.plan()


def test_a_containerd_2_that_no_longer_has_the_key_has_cdi_on():
    assert plan("version = 3\n", '[plugins."io.containerd.cri.v1.runtime"]\nenable_selinux = false\n', "2.5.0") is None
    assert plan("version = 2\n", '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "x"\n', "1.7.24")


def test_effective_already_is_left_alone():
    assert plan(None, ON, "1.7.24") is None
    assert plan("version = 3\n", OFF_2.replace("false", "true"), "2.1.9") is None


def test_custom_directories_stay_and_ours_come_beside_them():
    dump = ON.replace('"/etc/cdi", "/var/run/cdi"', '"/opt/cdi", "/etc/cdi"')
    content = "version = 2\n" + dump
    assert plan(content, dump, "1.7.24") == content.replace('"/etc/cdi"]', '"/etc/cdi", "/var/run/cdi"]')


@pytest.mark.parametrize("dirs", ['"/etc/cdi/", "/run/cdi"', '"/var/run/cdi/", "/etc//cdi"'])
def test_the_same_directories_spelled_otherwise_are_enough(dirs):
    dump = ON.replace('"/etc/cdi", "/var/run/cdi"', dirs)
    assert plan("version = 2\n" + dump, dump, "1.7.24") is None


@pytest.mark.parametrize(
    ("dirs", "wanted"),
    [
        (["/var/run/cdi"], ["/etc/cdi", "/var/run/cdi"]),
        (["/opt/cdi", "/run/cdi/", "/srv/cdi"], ["/opt/cdi", "/etc/cdi", "/run/cdi/", "/srv/cdi"]),
        (["/opt/cdi"], ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]),
        (["/etc/cdi", "/opt/cdi"], ["/etc/cdi", "/opt/cdi", "/var/run/cdi"]),
        ([], ["/etc/cdi", "/var/run/cdi"]),
    ],
)
def test_what_lies_in_var_run_cdi_overrides_what_lies_in_etc_cdi(dirs, wanted):
    assert Cdi(True, tuple(dirs)).wanted_dirs == wanted


@pytest.mark.parametrize(
    ("content", "table"),
    [
        ("version = 3\n", "io.containerd.cri.v1.runtime"),
        ("version = 2\n", "io.containerd.grpc.v1.cri"),
        (None, "io.containerd.cri.v1.runtime"),
    ],
)
def test_containerd_2_where_it_was_turned_off(content, table):
    edited = tomllib.loads(plan(content, OFF_2, "2.1.9"))
    assert edited["plugins"] == {table: {"enable_cdi": True}}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("version = -1\n", "version = -1 is not supported: set a version from 1 to 4"),
        ("version = 2\n[plugins\n", "not valid TOML .*line 2"),
    ],
)
def test_refused_with_the_reason(content, reason):
    with pytest.raises(UnsupportedConfig, match=reason):
        plan(content, OFF, "1.7.24")


def test_undo_by_key_gives_back_what_was_set():
    before = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n'
    later = plan(before, OFF, "1.7.24") + 'sandbox_image = "later"\n'
    assert tomllib.loads(undo(later, before)) == tomllib.loads(before + 'sandbox_image = "later"\n')


def test_the_comments_of_a_list_stay():
    content = (
        'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = true\n  cdi_spec_dirs = [\n'
        '    # vendor tools write here\n    "/opt/cdi", # since 2021\n    "/run/cdi", # short-lived\n  ]\n'
    )
    edited = plan(content, content, "1.7.24")
    assert edited == content.replace('    "/run/cdi"', '    "/etc/cdi",\n    "/run/cdi"')
    assert undo(edited + "# later\n", content) == content + "# later\n"


@pytest.mark.parametrize(
    ("version", "text", "advice"),
    [
        (
            "1.7.24",
            '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "x"\n',
            "set enable_cdi = true in /c/x.toml",
        ),
        ("2.1.9", OFF_2, "its imports override it: set enable_cdi = true in /c/x.toml"),
        (
            "2.1.9",
            '[plugins."io.containerd.cri.v1.runtime"]\ncdi_spec_dirs = ["/run/cdi"]\n',
            'set cdi_spec_dirs = ["/etc/cdi", "/run/cdi"] in /c/x.toml',
        ),
        (
            "1.7.24",
            OFF.replace('"/etc/cdi", ', ""),
            'set enable_cdi = true and cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"] in /c/x.toml',
        ),
    ],
)
def test_the_import_that_overrides_the_file_is_named(version, text, advice):
    harmless = {"1.7.24": ON, "2.1.9": '[plugins."io.containerd.cri.v1.runtime"]\nenable_selinux = true\n'}
    texts = {"/c/a.toml": "root = '/data'\n", "/c/x.toml": text, "/c/y.toml": harmless[version]}
    said = containerd_imports.overridden(texts, version, {"enable_cdi": True})
    assert said.startswith("turning CDI on in this file has no effect")
    assert said.endswith(advice)


def test_an_import_of_containerd_2_4_is_not_told_to_turn_cdi_on():
    """A key that is left over there changes nothing."""
    text = OFF_2.replace('"/etc/cdi", ', "")
    wanted = {"cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"]}
    said = containerd_imports.overridden({"/c/x.toml": text}, "2.4.2", wanted)
    assert said == (
        "listing the CDI directories in this file has no effect, because its imports override it: set cdi_spec_dirs = "
        '["/etc/cdi", "/var/run/cdi"] in /c/x.toml'
    )
    said = containerd_imports.overridden({}, "2.4.2", wanted)
    assert said.startswith(
        'an edit of this file has no effect on containerd: set cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]'
    )


@pytest.mark.parametrize("version", ["1.7.24", "2.1.9"])
def test_an_import_without_a_cri_table_is_no_reason(version):
    said = containerd_imports.overridden({"/c/x.toml": "root = '/data'\n"}, version, {"enable_cdi": True})
    assert said.startswith("an edit of this file has no effect on containerd: set enable_cdi = true by hand")


@pytest.mark.parametrize("itself", ["/etc/containerd/config.toml", "config.toml", "/srv/real.toml"])
def test_a_copy_does_not_import_the_file_itself(itself):
    content = f'version = 2\nimports = ["{itself}", "conf.d/*.toml"] # x\nroot = "/data"\n'
    copy = containerd_imports.staged(content, "/etc/containerd/config.toml", "/srv/real.toml", {}, None)
    assert copy == 'version = 2\nimports = ["conf.d/*.toml"] # x\nroot = "/data"\n'
    assert containerd_imports.staged(copy, "/etc/containerd/config.toml", "/srv/real.toml", {}, None) == copy


def test_a_pattern_that_takes_in_the_file_itself_is_named():
    content = 'imports = ["/etc/*/*.toml"]\n'
    with pytest.raises(UnsupportedConfig, match=r"import /etc/\*/\*\.toml matches the file itself"):
        containerd_imports.staged(content, "/etc/containerd/config.toml", "/etc/containerd/config.toml", {}, None)


def test_effective_comparison_of_a_file_that_imports_itself():
    one, copy, other = "/etc/containerd/config.toml", "/tmp/.staged", "/etc/containerd/conf.d/x.toml"
    before, after = (f"imports = {json.dumps(names)}\n{ON}" for names in ([other, one], [copy, one, other]))
    assert containerd_imports.unexpected_changes(before, after, one, copy) == []
    assert containerd_imports.unexpected_changes(before.replace(one, "config.toml"), after, one, copy) == []
    assert containerd_imports.unexpected_changes(before, after.replace("x.toml", "y.toml"), one, copy) == ["imports"]


def test_a_dump_with_control_characters_is_read_as_1_7_prints_it():
    assert containerd_config.printed('root = "a\x07b\x7f\rc\td"\r\nstate = "\\u0007"\n') == {
        "root": "a\x07b\x7f\rc\td",
        "state": "\x07",
    }
    with pytest.raises(UnsupportedConfig, match="the output of `containerd config dump` is not valid TOML"):
        containerd_config.printed("root")


def test_effective_comparison():
    before = 'imports = ["/etc/containerd/config.toml"]\n' + OFF
    after = 'imports = ["/etc/containerd/.staged"]\n' + ON
    places = ("/etc/containerd/config.toml", "/etc/containerd/.staged")
    assert containerd_imports.unexpected_changes(before, after, *places) == []
    assert containerd_imports.unexpected_changes(before, after + "sandbox_image = 'x'\n[grpc]\nuid = 1\n", *places) == [
        "grpc",
        "plugins.io.containerd.grpc.v1.cri.sandbox_image",
    ]


CRI_2, CRI_3 = '[plugins."io.containerd.grpc.v1.cri"]', "[plugins.'io.containerd.cri.v1.runtime']"
CONF_D = "/c/conf.d"


@pytest.mark.parametrize(
    ("imports", "texts", "place"),
    [
        (["/c/conf.d/*.toml"], {}, f"{CONF_D}/zz-node-devices.toml"),
        (["conf.d/*.toml"], {f"{CONF_D}/99-x.toml": "version = 3\n"}, f"{CONF_D}/zz-node-devices.toml"),
        # Ours from before, which is read last again.
        (["conf.d/*.toml"], {f"{CONF_D}/zz-node-devices.toml": "version = 3\n"}, f"{CONF_D}/zz-node-devices.toml"),
        # Something is read after it, or nobody takes it in.
        (["conf.d/*.toml"], {f"{CONF_D}/zzz.toml": "version = 3\n"}, None),
        (["conf.d/*.toml"], {f"{CONF_D}/a.toml": 'imports = ["b.toml"]\n'}, None),
        (["conf.d/*.toml", "last.toml"], {}, None),
        (["conf.d/*.toml", "more.d/*.toml", "conf.d/*.toml"], {"/c/more.d/a.toml": ""}, None),
        (["./conf.d/*.toml", "conf.d/*.toml"], {f"{CONF_D}/a.toml": ""}, f"{CONF_D}/zz-node-devices.toml"),
        (["conf.d/*.conf"], {}, f"{CONF_D}/zz-node-devices.conf"),
        (["conf.d/[0-9]*.toml"], {f"{CONF_D}/50-x.toml": ""}, f"{CONF_D}/99-zz-node-devices.toml"),
        (["conf.d/[0-9]*.toml"], {f"{CONF_D}/9x.toml": ""}, None),
        (["conf.d/[^z]*.toml"], {}, f"{CONF_D}/99-zz-node-devices.toml"),
        (["*/*.toml"], {}, None),
        (["conf.?/*.toml"], {f"{CONF_D}/a.toml": ""}, None),
        (["conf.[d]/*.toml"], {f"{CONF_D}/a.toml": ""}, None),
        ([], {}, None),
    ],
)
def test_where_a_drop_in_of_ours_would_be_read_last(imports, texts, place):
    content = f"imports = {json.dumps(imports)}\n"
    assert containerd_imports.place_of_drop_in(content, "/c/config.toml", texts) == place


@pytest.mark.parametrize(
    ("texts", "files"),
    [
        ({f"{CONF_D}/a.toml": f"{CRI_2}\ny = 1", f"{CONF_D}/b.toml": f"{CRI_2}\nx = 1"}, ["b", "a"]),
        ({f"{CONF_D}/a.toml": CRI_2, f"{CONF_D}/b.toml": f"{CRI_2}\r\nx = 1"}, ["b"]),
        ({f"{CONF_D}/a.toml": f"{CRI_2}\nx = 1", f"{CONF_D}/b.toml": "root = '/data'"}, ["a"]),
        ({f"{CONF_D}/a.toml": "root = '/data'"}, []),
        ({f"{CONF_D}/a.toml": f"imports = ['b.toml']\n{CRI_2}\nx = 1"}, []),
    ],
)
def test_which_import_has_the_table_that_1_7_takes(texts, files):
    assert containerd_imports.deciding(texts) == [f"{CONF_D}/{name}.toml" for name in files]


def imported(version, root, texts, off, on):
    """An adapter whose containerd says `on` only of a copy that imports the drop-in that was asked about."""
    adapter = of(root, off, version)
    adapter.config["imports"] = imports_of(texts)
    asked = []

    def effective_with(text, drop_in):
        asked.append((tomllib.loads(text)["imports"], drop_in))
        return on if drop_in else off

    adapter.effective_with = effective_with
    return adapter, asked


def test_containerd_2_gets_a_drop_in_of_ours_where_one_overrides_the_root_file():
    texts = {"/conf.d/99-site.toml": f"version = 3\n{CRI_3}\nenable_cdi = false\n"}
    root = 'version = 3\nimports = ["conf.d/*.toml"]\n'
    adapter, asked = imported("2.1.9", root, texts, OFF_2, OFF_2.replace("false", "true"))
    change = adapter.plan()
    assert (change.path, change.before) == ("/conf.d/zz-node-devices.toml", None)
    assert change.after == f"version = 3\n\n{CRI_3}\nenable_cdi = true\n"
    assert asked[-1] == (["conf.d/*.toml", "/{drop_in}"], change.after)
    adapter.config["imports"] = imports_of({**texts, change.path: change.after})
    assert adapter.undo(change.path, True, None) == Change(change.path, change.after, None)


@pytest.mark.parametrize(
    ("added", "left"),
    [
        ("# later\n", None),
        ("enable_selinux = true\n", f"version = 3\n\n{CRI_3}\nenable_selinux = true\n"),
        ("[debug]\nlevel = 'info'\n", f"version = 3\n\n{CRI_3}\n[debug]\nlevel = 'info'\n"),
    ],
)
def test_what_others_wrote_into_our_drop_in_stays(added, left):
    path, ours = "/conf.d/zz-node-devices.toml", f"version = 3\n\n{CRI_3}\nenable_cdi = true\n"
    adapter = checked_by(of('version = 3\nimports = ["conf.d/*.toml"]\n', OFF_2, "2.1.9"), OFF_2)
    adapter.config["imports"] = imports_of({path: ours + added})
    assert adapter.undo(path, False, None) == Change(path, ours + added, left)


@pytest.mark.parametrize(
    ("theirs", "edited"),
    [
        (f"# mine\nversion = 3\n{CRI_3}\n", f"# mine\nversion = 3\n{CRI_3}\nenable_cdi = true\n"),
        (
            f"version = 3\n{CRI_3}\n# off\nenable_cdi = false # why\n",
            f"version = 3\n{CRI_3}\n# off\nenable_cdi = true # why\n",
        ),
        ("# empty\n", f"# empty\nversion = 3\n\n{CRI_3.replace(chr(39), chr(34))}\nenable_cdi = true\n"),
    ],
)
@pytest.mark.parametrize("is_link", [False, True])
def test_a_drop_in_that_has_our_name_already_is_edited(theirs, edited, is_link):
    path = "/conf.d/zz-node-devices.toml"
    texts = {"/conf.d/99-site.toml": f"version = 3\n{CRI_3}\nenable_cdi = false\n", path: theirs}
    root = 'version = 3\nimports = ["conf.d/*.toml"]\n'
    adapter, _asked = imported("2.1.9", root, texts, OFF_2, OFF_2.replace("false", "true"))
    adapter.config["imports"] = imports_of(texts, links=[path] if is_link else [])
    change = adapter.plan()
    if is_link:
        assert change.path == "/conf.d/99-site.toml"
    else:
        assert change == Change(path, theirs, edited)


BOTH = "[plugins.cri]\nenable_cdi = true\n" + OFF
ON_2 = OFF_2.replace("false", "true")


@pytest.mark.parametrize(
    ("text", "dump"),
    # In 2 of 16 restarts CDI was off with the first. An edit of one table would leave the other.
    [(BOTH, ON_2), (BOTH, OFF_2), (BOTH.replace("= true", "= false").replace("cdi_spec", "# cdi_spec"), OFF_2)],
)
@pytest.mark.parametrize("place", ["the file", "/conf.d/site.toml"])
def test_two_tables_of_which_containerd_2_takes_one_at_random_are_refused(text, dump, place):
    adapter = of(text if place == "the file" else 'version = 2\nimports = ["conf.d/*.toml"]\n', dump, "2.1.9")
    adapter.config["imports"] = imports_of({"/conf.d/site.toml": text})
    with pytest.raises(
        UnsupportedConfig,
        match=rf"{place} has \[plugins\.cri\] and \[plugins\..*grpc\.v1\.cri.\] .* at random: move",
    ):
        checked_by(adapter, dump).plan()


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("2.1.9", '[plugins.cri]\nx = 1\n[plugins."io.containerd.grpc.v1.cri"]\nx = 2\n'),
        ("2.4.0", BOTH),
        ("1.7.24", BOTH),
        ("2.1.9", "version = 2\n" + BOTH),
        ("2.1.9", OFF),
    ],
)
def test_two_tables_that_make_no_difference_are_left_alone(version, text):
    on = ON if version < "2" else ON_2
    assert checked_by(of(text, on, version), on).plan() is None


def test_the_drop_in_that_1_7_takes_is_edited_and_given_back():
    theirs = f'version = 2\n{CRI_2}\n  sandbox_image = "x" # theirs\n'
    texts = {"/conf.d/10-a.toml": f"version = 2\n{CRI_2}\nx = 1\n", "/conf.d/99-b.toml": theirs}
    root = 'version = 2\nimports = [ # by team\n  "conf.d/*.toml",\n]\n'
    adapter, asked = imported("1.7.24", root, texts, OFF, ON)
    change = adapter.plan()
    edited = theirs.replace("  sandbox", "  enable_cdi = true\n  sandbox")
    assert change == Change("/conf.d/99-b.toml", theirs, edited)
    assert asked[-1] == (["/conf.d/10-a.toml", "/{drop_in}"], edited)
    adapter.config["imports"] = imports_of({**texts, change.path: f"{edited}# later\n"})
    undone = adapter.undo(change.path, False, theirs)
    assert undone.after == f"{theirs}# later\n"


def test_an_import_that_is_not_there_and_one_that_turns_cri_off_are_named():
    adapter = of('version = 3\nimports = ["gone.toml", "conf.d/*.toml"]\n', OFF_2, "2.1.9")
    missing = [
        ("/c.toml", "/gone.toml", "not a file", "remove it from imports"),
        ("/c.toml", "/conf.d/x.d.toml", "a directory", "remove it"),
    ]
    text = 'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
    adapter.config["imports"] = imports_of({"/conf.d/x.toml": text}, missing=missing)
    missing, directory, disabled = adapter.obstacles(True)
    assert missing.startswith(
        "/c.toml imports /gone.toml, which is not a file, so containerd cannot start again: remove it"
    )
    assert directory == (
        "/c.toml imports /conf.d/x.d.toml, which is a directory, so containerd cannot start again: remove it"
    )
    assert disabled.startswith("/conf.d/x.toml disables CRI (disabled_plugins has io.containerd.grpc.v1.cri)")


def test_an_import_that_is_why_containerd_does_not_take_the_whole_is_named():
    adapter = of('version = 3\nimports = ["conf.d/*.toml"]\n', "", "2.1.9")
    texts = {"/conf.d/a.toml": "version = 3\n", "/conf.d/b.toml": "version = 3\n= 4\n"}
    adapter.config["imports"] = imports_of(texts, unreadable=["/conf.d/c.toml"])
    unreadable, invalid = adapter.obstacles(True)
    assert unreadable.startswith(
        "/conf.d/c.toml, which /c.toml imports, is not UTF-8, so containerd cannot start again"
    )
    assert invalid.startswith("/conf.d/b.toml, which /c.toml imports: not valid TOML (")
    assert "line 2, column 1" in invalid
    assert invalid.endswith(": fix the file first, because containerd cannot start again")


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"default_runtime_name": "runc", "runtimes": {"nvidia": {}, "runc": {}}}, False),
        ({"default_runtime_name": "runc", "runtimes": {"nvidia": {}, "kata": {}}}, True),
        ({"default_runtime_name": "", "runtimes": {}}, True),
        ({"default_runtime_name": "x", "runtimes": {}, "default_runtime": {"runtime_type": "io.y"}}, False),
        ({"default_runtime_name": "x", "runtimes": {}, "default_runtime": {"runtime_type": ""}}, True),
        ({}, False),
    ],
)
@pytest.mark.parametrize("version", ["1.7.24", "2.1.9"])
def test_a_cri_that_would_not_come_up_again_is_refused(settings, refused, version):
    """The daemon may run with what was there before: a restart, and one with the former file, would end it."""
    table = "io.containerd.grpc.v1.cri" if version < "2" else "io.containerd.cri.v1.runtime"
    dump = tomlkit.dumps({"plugins": {table: {"containerd": settings}}})
    adapter = of('imports = ["/conf.d/*.toml"]\n', dump, version)
    sentences = list(adapter.obstacles(True))
    assert ["CRI cannot start again" in sentence for sentence in sentences] == [True] * refused
    adapter.config["imports"] = imports_of({"/conf.d/a.toml": ""})
    by_import = "the only such table that containerd 1.7 reads" in "".join(adapter.obstacles(True))
    assert by_import is (refused and version < "2")
    assert list(of("", "no = TOML = at all", version).obstacles(True)) == []


NAMED = f"{CRI_2.replace(']', '.containerd]')}\ndefault_runtime_name = 'x'\n"


@pytest.mark.parametrize(
    ("root", "text", "words"),
    [
        (
            "",
            "",
            "/c.toml: CRI's default_runtime_name is x, containerd's default, but its runtimes are y",
        ),
        (NAMED, "", "/c.toml sets CRI's default_runtime_name to x, but its runtimes are y"),
        (NAMED.replace("'x'", "'y'"), NAMED, "/a.toml sets CRI's default_runtime_name to x, but its runtimes are y"),
        (NAMED, NAMED, "/a.toml sets CRI's default_runtime_name to x, but its runtimes are y"),
        (
            NAMED.replace("'x'", "'y'"),
            "",
            "/c.toml: CRI's default_runtime_name is x, containerd's default, but its runtimes are y",
        ),
        (NAMED, f"{CRI_2}\ncontainerd = 1\n", "/c.toml sets CRI's default_runtime_name to x, but its runtimes are y"),
    ],
)
@pytest.mark.parametrize("version", ["1.7.24", "2.1.9"])
def test_the_file_that_sets_the_default_runtime_is_named(version, root, text, words):
    table = CRI_2 if version < "2" else CRI_3
    dump = f"{table.replace(']', '.containerd]')}\ndefault_runtime_name = 'x'\nruntimes.y = {{}}\n"
    adapter = of(f"version = 2\n{root}", dump, version)
    adapter.config["imports"] = imports_of({"/a.toml": f"version = 2\n{text}"})
    (sentence,) = adapter.obstacles(True)
    assert sentence.startswith(f"{words}, so CRI cannot start again: ")


@pytest.mark.parametrize(
    ("version", "text", "off"),
    [
        ("1.7.24", 'disabled_plugins = ["cri"]', ["cri"]),
        ("1.7.24", 'version = 1\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]', []),
        ("1.7.24", 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]', ["io.containerd.grpc.v1.cri"]),
        ("1.7.24", 'version = 2\ndisabled_plugins = ["io.containerd.cri.v1.runtime"]', []),
        ("2.1.9", 'disabled_plugins = ["cri"]', ["cri"]),
        ("2.1.9", 'version = 1\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]', ["io.containerd.grpc.v1.cri"]),
        ("2.1.9", 'version = 3\ndisabled_plugins = ["io.containerd.cri.v1.images"]', ["io.containerd.cri.v1.images"]),
        # With this name, a file of version 2 or later keeps containerd from its start.
        ("1.7.24", 'version = 2\ndisabled_plugins = ["cri"]', ["cri"]),
        ("2.1.9", 'version = 3\ndisabled_plugins = ["cri"]', ["cri"]),
    ],
)
def test_cri_is_off_by_the_names_that_the_file_has_for_it(version, text, off):
    found = [sentence for sentence in of(text + "\n", ON, version).obstacles(True) if "disables CRI" in sentence]
    assert [f"(disabled_plugins has {name})" in sentence for sentence, name in zip(found, off)] == [True] * len(off)
    assert len(found) == len(off)


@pytest.mark.parametrize(
    "text",
    [
        f"Version = 2\n{CRI_2}\n",
        "version = 2\nImports = ['/conf.d/*.toml']\n",
        f"version = 2\n{CRI_2.replace('plugins', 'Plugins')}\n",
        f"version = 3\n{CRI_3}\nEnable_CDI = false\n",
    ],
)
def test_a_key_in_capitals_that_containerd_2_takes_is_judged_by_what_it_makes_of_the_edit(text):
    """As any file: an edit that has no effect, or changes more, is not made."""
    adapter = of(text, OFF_2, "2.1.9")
    for answer, why in (
        (OFF_2, "an edit of this file has no effect on containerd"),
        (ON_2 + "x = 1\n", "would also change"),
    ):
        adapter.effective_with = lambda text, drop_in, answer=answer: answer
        with pytest.raises(UnsupportedConfig, match=why):
            adapter.plan()


NVIDIA = "/etc/containerd/conf.d/99-nvidia.toml"


@pytest.mark.parametrize(
    ("version", "root_after", "drop_in", "named"),
    [
        # The last CRI table counts whole: nvidia-ctk's, with our line in it, or without.
        ("1.7.24", "", ON, NVIDIA),
        ("1.7.24", "", OFF, None),
        ("1.7.24", "", "[debug]\nlevel = 'info'\n", None),
        # Our change was of the directories alone.
        ("1.7.24", ON, ON, None),
        # Where it is on by default, nobody is named who says so, too.
        ("2.1.9", "", ON, None),
        ("2.1.9", OFF, ON, NVIDIA),
        ("2.1.9", OFF, "[debug]\nlevel = 'info'\n", None),
        ("2.4.2", OFF, ON, None),
    ],
)
def test_what_keeps_cdi_on_after_our_change_is_taken_back_is_named(version, root_after, drop_in, named):
    root, head = "/etc/containerd/config.toml", 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
    config = {"path": root, "real_path": root, "content": head + ON, "imports": imports_of({NVIDIA: drop_in})}
    adapter = runtimes.Containerd({"name": "containerd", "version": version, "config": config})
    assert adapter.left_on([Change(root, head + ON, head + root_after)]) == named
    # A drop-in that is itself taken back keeps nothing on.
    both = [Change(root, head + ON, head + root_after), Change(NVIDIA, drop_in, None)]
    assert adapter.left_on(both) == (root if root_after == ON and drop_in == ON else None)
