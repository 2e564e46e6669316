"""The table of runtimes: which adapter has a node, what it plans, and what it says to do by hand."""

from __future__ import annotations

import json
import re

import pytest
import tomlkit

from node_device_plugin.runtime import configuration as runtimes
from node_device_plugin.runtime.configuration.cdi import Change, UnsupportedConfig
from node_device_plugin.support.toml import tomllib

DIRS = ["/etc/cdi", "/var/run/cdi"]
K3S = "/var/lib/rancher/k3s/agent/etc/containerd"


def runtime(name, socket="/run/x.sock", executable=None, version="2.1.4", **config):
    config = {"path": "/etc/x", "exists": True, "content": "", "files": {}, "effective": "", **config}
    config.setdefault("real_path", config["path"])
    return {
        "name": name,
        "socket": socket,
        "executable": executable or f"/usr/bin/{name}",
        "version": version,
        "config": config,
    }


K3S_DATA = "/var/lib/rancher/k3s/data/0123/bin/containerd"
MICROK8S = "/snap/microk8s/7000/bin/containerd"


@pytest.mark.parametrize(
    ("facts", "adapter"),
    [
        (runtime("containerd", path="/etc/containerd/config.toml"), "containerd"),
        (runtime("containerd", executable="/usr/local/bin/containerd", path="/srv/containerd.toml"), "containerd"),
        (runtime("containerd", executable=K3S_DATA, path=f"{K3S}/config.toml"), "k3s or RKE2"),
        (runtime("containerd", path="/var/lib/rancher/rke2/agent/etc/containerd/config.toml"), "k3s or RKE2"),
        (runtime("containerd", path="/data/k3s/agent/etc/containerd/config.toml"), "k3s or RKE2"),
        (runtime("containerd", executable=MICROK8S), "MicroK8s' containerd"),
        (runtime("containerd", socket="/run/k0s/containerd.sock"), "k0s' containerd"),
        (runtime("crio"), "CRI-O"),
        (runtime("dockerd"), "/usr/bin/dockerd"),
        (runtime("cri-dockerd"), "cri-dockerd"),
        (runtime("k3s", socket="/run/k3s/cri-dockerd/cri-dockerd.sock"), "cri-dockerd"),
        (runtime("frakti"), "/usr/bin/frakti"),
    ],
)
def test_which_adapter_has_a_runtime(facts, adapter):
    assert runtimes.of(facts).name == adapter


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        (runtime("cri-dockerd"), "run the kubelet with containerd"),
        (runtime("dockerd"), "set node_devices_cri_socket to its socket"),
        (runtime("frakti"), "only containerd and CRI-O are supported"),
    ],
)
def test_by_hand(facts, advice):
    adapter = runtimes.of(facts)
    (sentence,) = adapter.obstacles(True)
    assert advice in sentence
    assert list(adapter.obstacles(False)) == []
    with pytest.raises(UnsupportedConfig, match=r"."):
        adapter.plan()


@pytest.mark.parametrize(
    ("its", "order"),
    [
        ([], ["/etc/cdi", "/var/run/cdi"]),
        (["/opt/cdi"], ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]),
        (["/run/cdi/", "/opt/cdi"], ["/etc/cdi", "/var/run/cdi", "/opt/cdi"]),
        (["/var/run/cdi", "/etc/cdi/"], ["/var/run/cdi", "/etc/cdi"]),
    ],
)
def test_the_spec_directories_have_the_runtimes_order(its, order):
    dump = f"version = 3\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = {json.dumps(its)}\n"
    assert runtimes.spec_dirs(runtime("containerd", effective=dump)) == order
    assert (
        runtimes.spec_dirs(runtime("crio", effective=f"[crio.runtime]\ncdi_spec_dirs = {json.dumps(its)}\n")) == order
    )
    # An option of CRI-O overrides its files.
    given = f"--cdi-spec-dirs={','.join(its)}" if its else None
    effective = '[crio.runtime]\ncdi_spec_dirs = ["/x"]\n' if its else "a = 1"
    assert runtimes.spec_dirs(runtime("crio", effective=effective, given_dirs=given)) == order


@pytest.mark.parametrize(
    "facts",
    [
        {"socket": "/run/x.sock", "problem": "no such file"},
        runtime("containerd", effective=None, problem="exit code 1"),
        runtime("containerd", effective="a = [ "),
        runtime("crio", effective="a = [ "),
        runtime("cri-dockerd"),
    ],
)
def test_a_runtime_that_tells_no_spec_directories_has_ours(facts):
    assert runtimes.spec_dirs(facts) == DIRS


K0S = {"socket": "/run/k0s/containerd.sock", "path": "/etc/k0s/containerd.toml"}


@pytest.mark.parametrize("effective", ["off", "other folders", "nothing said"])
@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        (
            {"executable": MICROK8S, "version": "1.7.27"},
            '{} below [plugins."io.containerd.grpc.v1.cri"] in '
            "/var/snap/microk8s/current/args/containerd-template.toml, then run `snap restart "
            "microk8s.daemon-containerd`",
        ),
        (
            {**K0S, "version": "1.7.34"},
            'write /etc/k0s/containerd.d/cdi.toml with version = 2, [plugins."io.containerd.grpc.v1.cri"] and {};',
        ),
        (
            {**K0S, "version": "2.3.4"},
            'write /etc/k0s/containerd.d/cdi.toml with version = 3, [plugins."io.containerd.cri.v1.runtime"] and {};',
        ),
    ],
)
def test_a_distributions_containerd_is_fixed_by_hand_where_cdi_is_not_effective(facts, advice, effective):
    off, other = 'enable_cdi = false\ncdi_spec_dirs = ["/etc/cdi", "/run/cdi"]', 'cdi_spec_dirs = ["/etc/cdi"]'
    keys = {"off": off, "other folders": f"enable_cdi = true\n{other}", "nothing said": None}[effective]
    dump = keys and f"[plugins.'io.containerd.cri.v1.runtime']\n{keys}\n"
    wanted = 'cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]' if effective == "other folders" else "enable_cdi = true"
    adapter = runtimes.of(runtime("containerd", **facts, effective=dump))
    (sentence,) = adapter.obstacles(True)
    assert sentence.startswith(f"the container runtime at {adapter.runtime['socket']} is {adapter.name}: ")
    assert advice.format(wanted) in sentence
    assert list(adapter.obstacles(False)) == []
    with pytest.raises(UnsupportedConfig, match=re.escape(advice.format(wanted))):
        adapter.plan()
    assert adapter.undo("/etc/k0s/containerd.toml", True, None) is None


@pytest.mark.parametrize("facts", [{"executable": MICROK8S}, K0S])
def test_a_distributions_containerd_is_left_alone_where_cdi_is_effective(facts):
    dump = f"[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\ncdi_spec_dirs = {json.dumps(DIRS)}\n"
    adapter = runtimes.of(runtime("containerd", **facts, version="2.2.3", effective=dump))
    assert list(adapter.obstacles(True)) == []
    assert adapter.plan() is None


@pytest.mark.parametrize("facts", [{"executable": MICROK8S}, K0S])
@pytest.mark.parametrize(
    ("effective", "wanted"),
    [
        (None, None),
        (["/etc/cdi", "/run/cdi"], None),
        (["/etc/cdi"], 'cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]'),
    ],
)
def test_nobody_is_sent_to_turn_cdi_on_where_it_is_always_on(facts, effective, wanted):
    """containerd 2.4 has no enable_cdi, and a snap's containerd may not print its configuration."""
    dump = effective and f"[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = {json.dumps(effective)}\n"
    adapter = runtimes.of(runtime("containerd", **facts, version="2.4.2", effective=dump))
    told = list(adapter.obstacles(True))
    assert [wanted in sentence and "enable_cdi" not in sentence for sentence in told] == [True] * bool(wanted)
    if not wanted:
        assert adapter.plan() is None


def test_a_distributions_containerd_that_drops_cdi_names_is_refused_for_that():
    (sentence,) = runtimes.of(runtime("containerd", **K0S, version="1.6.36")).obstacles(True)
    assert "silently drops the kubelet's CDI device names" in sentence


def k3s(version, content, effective, files=None):
    path = f"{K3S}/config.toml"
    return runtimes.of(
        runtime("containerd", version=version, path=path, content=content, effective=effective, files=files or {})
    )


def merged(adapter, effective):
    """The adapter, with a containerd 2 that merges the two keys into `effective`."""

    def effective_with(text, drop_in):
        data = tomllib.loads(effective)
        for name, table in tomllib.loads(drop_in or text)["plugins"].items():
            data["plugins"].setdefault(name, {}).update(table)
        return tomlkit.dumps(data)

    adapter.effective_with = effective_with
    return adapter


GENERATED_3 = f"""\
# File generated by k3s. DO NOT EDIT. Use config-v3.toml.tmpl instead.
version = 3
imports = ["{K3S}/config-v3.toml.d/*.toml"]

[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
"""
GENERATED_2 = """\
# File generated by k3s. DO NOT EDIT. Use config.toml.tmpl instead.
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  enable_selinux = false
"""
OFF_3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\nenable_selinux = false\n"
OFF_2 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\nenable_selinux = false\n'


def test_k3s_with_containerd_2_gets_a_drop_in_at_the_version_of_the_generated_file():
    change = merged(k3s("2.1.4-k3s1", GENERATED_3, OFF_3), OFF_3).plan()
    assert change.path == f"{K3S}/config-v3.toml.d/zz-node-devices.toml"
    assert change.before is None
    assert tomllib.loads(change.after) == {
        "version": 3,
        "plugins": {"io.containerd.cri.v1.runtime": {"enable_cdi": True}},
    }


def test_k3s_where_cdi_is_on_is_left_alone():
    on = OFF_3.replace("= false\nenable_s", f"= true\ncdi_spec_dirs = {json.dumps(DIRS)}\nenable_s")
    assert k3s("2.1.4-k3s1", GENERATED_3, on).plan() is None


TEMPLATE = """\
version = 2
{{ if .NodeConfig.AgentConfig.Snapshotter }}
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "{{ .NodeConfig.AgentConfig.Snapshotter }}"
{{ end }}
[plugins."io.containerd.grpc.v1.cri"]
  enable_selinux = {{ .NodeConfig.SELinux }}
"""


def test_k3s_with_containerd_1_has_its_template_edited_and_given_back():
    path = f"{K3S}/config.toml.tmpl"
    change = merged(k3s("1.7.26-k3s1", GENERATED_2, OFF_2, {path: TEMPLATE}), OFF_2).plan()
    keys = '  enable_cdi = true\n  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
    assert change == Change(path, TEMPLATE, TEMPLATE.replace("  enable_selinux", keys + "  enable_selinux"))
    edited = k3s("1.7.26-k3s1", GENERATED_2, OFF_2, {path: change.after})
    assert edited.undo(path, True, TEMPLATE) == Change(path, change.after, TEMPLATE)
    later = change.after + "# later\n"
    grown = k3s("1.7.26-k3s1", GENERATED_2, OFF_2, {path: later})
    assert grown.undo(path, False, TEMPLATE) == Change(path, later, TEMPLATE + "# later\n")


KEYS_1 = '  enable_cdi = true\n  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
LIST = '  cdi_spec_dirs = [\n    "/etc/cdi",\n    "/opt/cdi",\n    "/var/run/cdi",\n  ]\n'


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (KEYS_1, ""),
        (KEYS_1.replace("\n", " # ours\r\n"), ""),
        (f"  a = 1\n{KEYS_1}", "  a = 1\n"),
        # The values of others.
        (f"  enable_cdi = true\n{LIST}", LIST),
        (LIST.replace("\n    ", " "), LIST.replace("\n    ", " ")),
        ('  enable_cdi = false\n  cdi_spec_dirs = ["/opt/cdi"]\n', None),
    ],
)
def test_only_what_we_wrote_into_a_template_of_k3s_is_taken_back(keys, left):
    """The same lines in a comment or in another table are those of others."""
    path = f"{K3S}/config.toml.tmpl"
    start = f"{{{{/* [plugins.cri]\n{KEYS_1}*/}}}}\n[plugins.site]\n{KEYS_1}{TEMPLATE}"
    now, end = f"{start}{keys}", f"[plugins.last]\n{KEYS_1}"
    adapter = k3s("1.7.26-k3s1", GENERATED_2, OFF_2, {path: now + end})
    assert adapter.undo(path, False, TEMPLATE).after == start + (keys if left is None else left) + end


HEADER_2 = '[plugins."io.containerd.grpc.v1.cri"]'


@pytest.mark.parametrize(
    "other",
    [
        f"{{{{/* {HEADER_2}\n{HEADER_2}\nenable_cdi = true\n*/}}}}\n",
        f"{{{{- /*\n{HEADER_2} */ -}}}}\n",
        f"# '''\n[plugins.x]\na = '''\n{HEADER_2}\nenable_cdi = true\n'''\nb = \"#'''\"\n",
        f'[plugins.x]\na = """\\"""\n{HEADER_2}\n"""\n',
        "{{ range .X }}{{ if . }}{{ else if .Y }}{{ end }}{{ end }}\n",
    ],
)
def test_only_the_header_that_containerd_reads_gets_our_lines(other):
    path = f"{K3S}/config.toml.tmpl"
    template = other + TEMPLATE
    change = merged(k3s("1.7.26-k3s1", GENERATED_2, OFF_2, {path: template}), OFF_2).plan()
    assert change.after == other + TEMPLATE.replace("  enable_selinux", f"{KEYS_1}  enable_selinux")


def test_a_comment_that_begins_in_the_headers_line_stays_whole():
    path = f"{K3S}/config.toml.tmpl"
    template = TEMPLATE.replace(HEADER_2, f"{HEADER_2} {{{{/* a\nb */}}}}")
    change = merged(k3s("1.7.26-k3s1", GENERATED_2, OFF_2, {path: template}), OFF_2).plan()
    assert change.after == template.replace("  enable_selinux", f"{KEYS_1}  enable_selinux")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "upgrade to k3s or RKE2 1.31.6, 1.32.2 or later, whose containerd 2 has CDI on by default; or copy"),
        ({"config.toml.tmpl": '{{ template "base" . }}\n'}, "because only its base template has the header"),
        ({"config.toml.tmpl": '[plugins."io.containerd.gc.v1.scheduler"]\n'}, "it does not have the header"),
        (
            {"config.toml.tmpl": f"{{{{ if .X }}}}\n{HEADER_2}\n{{{{ end }}}}\n{TEMPLATE}"},
            "because it repeats the header",
        ),
        (
            {"config.toml.tmpl": f"{{{{- with .X }}}}\n{TEMPLATE}{{{{ end }}}}\n"},
            "because only a block such as {{ if }} has",
        ),
        ({"config.toml.tmpl": f"{HEADER_2} {{{{ if .X }}}}\n a = 1\n{{{{ end }}}}\n"}, "because only a block such as"),
        ({"config.toml.tmpl": '{{/* {{ template "base" . }} */}}\n'}, "it does not have the header"),
        ({"config.toml.tmpl": TEMPLATE + "  enable_cdi = false\n"}, "already has enable_cdi or cdi_spec_dirs"),
    ],
)
def test_k3s_with_containerd_1_that_cannot_be_edited_says_what_to_do(files, words):
    files = {f"{K3S}/{name}": text for name, text in files.items()}
    with pytest.raises(UnsupportedConfig, match=words):
        merged(k3s("1.7.26-k3s1", GENERATED_2, OFF_2, files), OFF_2).plan()


@pytest.mark.parametrize(
    ("version", "name"),
    [(None, "config.toml.tmpl"), ("1.7.26-k3s1", "config.toml.tmpl"), ("2.1.4-k3s1", "config-v3.toml.tmpl")],
)
@pytest.mark.parametrize("content", ["[plugins\n", 'version = "2"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'])
@pytest.mark.parametrize("there", [True, False])
def test_an_obstacle_in_a_generated_file_names_its_template(version, name, content, there):
    adapter = k3s(version, content, None, {f"{K3S}/{name}": content} if there else {})
    found = [obstacle for obstacle in adapter.obstacles(True) if f"{K3S}/config.toml" in obstacle]
    place = f"{K3S}/{name}" if there else f"{K3S}/{name}, as a copy of the file"
    says = f"(k3s or RKE2 generates {K3S}/config.toml at every start, so make the change in {place})"
    assert len(found) == 1
    assert found[0].endswith(says)


def test_a_template_of_k3s_without_a_version_is_version_1():
    """containerd 1.7 reads it so, and ignores the table of version 2."""
    path, off = f"{K3S}/config.toml.tmpl", "[plugins.cri]\n  enable_cdi = false\n  stream_server_port = 0\n"
    text = "[plugins.cri]\n  stream_server_port = 0\n"
    change = merged(k3s("1.7.26-k3s1", text, off, {path: text}), off).plan()
    keys = '  enable_cdi = true\n  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
    assert change == Change(path, text, text.replace("  stream", f"{keys}  stream"))
    later = change.after + "# later\n"
    grown = k3s("1.7.26-k3s1", later, off, {path: later})
    assert grown.undo(path, False, text) == Change(path, later, f"{text}# later\n")
    with pytest.raises(UnsupportedConfig, match=r"below \[plugins\.cri\] in the copy"):
        merged(k3s("1.7.26-k3s1", text, off), off).plan()
    full = OFF_2.partition("\n")[2]
    says = "set version = 2 before the first table (k3s or RKE2 generates"
    with pytest.raises(UnsupportedConfig, match=re.escape(says)):
        merged(k3s("1.7.26-k3s1", full, OFF_2, {path: full}), OFF_2).plan()


def test_k3s_with_containerd_2_whose_file_imports_nothing_is_not_told_to_upgrade():
    with pytest.raises(
        UnsupportedConfig, match="the file is generated at every start, and it imports no directory"
    ) as refused:
        merged(k3s("2.1.4-k3s1", OFF_3, OFF_3), OFF_3).plan()
    assert "upgrade" not in str(refused.value)
    assert f"{K3S}/config-v3.toml.tmpl, set enable_cdi = true below" in str(refused.value)


CRIO_D = "/etc/crio/crio.conf.d"
OTHER_DIRS = '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n'
OURS = f"[crio.runtime]\ncdi_spec_dirs = {json.dumps(['/opt/cdi', *DIRS])}\n"


def crio(effective=OTHER_DIRS, files=None, version="1.36.3", kill_mode="control-group", **config):
    config = {"drop_in_directory": CRIO_D, "files": files or {}, "effective": effective, "given_dirs": None, **config}
    facts = runtime("crio", version=version, **config)
    return runtimes.of({**facts, "unit": "crio.service", "kill_mode": kill_mode})


def answering(adapter, effective=None):
    """The adapter, with a CRI-O that makes that of a drop-in, or what is in it."""
    adapter.effective_with = lambda path, text: text if effective is None else effective
    return adapter


@pytest.mark.parametrize(
    "effective", ["[crio]\n[crio.runtime]\n", f"[crio.runtime]\ncdi_spec_dirs = {json.dumps(DIRS)}\n"]
)
def test_crio_gives_cdi_devices_anyway(effective):
    assert crio(effective).plan() is None


@pytest.mark.parametrize("dirs", [["/opt/cdi"], []])
def test_crios_directories_can_be_others(dirs):
    effective = f"[crio.runtime]\ncdi_spec_dirs = {json.dumps(dirs)}\n"
    change = answering(crio(effective)).plan()
    assert (change.path, change.before) == (f"{CRIO_D}/99-node-devices.conf", None)
    assert tomllib.loads(change.after) == {"crio": {"runtime": {"cdi_spec_dirs": [*dirs, *DIRS]}}}
    edited = crio("x", {change.path: change.after})
    assert edited.undo(change.path, True, None) == Change(change.path, change.after, None)


def test_crios_drop_in_is_tried_before_it_is_written():
    asked = []

    def effective_with(path, text):
        asked.append((path, text))
        return text

    adapter = crio()
    adapter.effective_with = effective_with
    adapter.plan()
    assert asked == [(f"{CRIO_D}/99-node-devices.conf", OURS)]


@pytest.mark.parametrize(
    ("made_of_it", "words"),
    [
        (OTHER_DIRS, f"a drop-in at {CRIO_D}/99-node-devices.conf has no effect: set cdi_spec_dirs ="),
        (
            OURS + "[crio.image]\npause_image = 'x'\n",
            "would also change crio.image in CRI-O's effective configuration",
        ),
    ],
)
def test_crios_drop_in_that_does_not_do_what_it_should_is_not_written(made_of_it, words):
    with pytest.raises(UnsupportedConfig, match=re.escape(words)):
        answering(crio(), made_of_it).plan()


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ("zz-site.conf", OTHER_DIRS),
        ("zz/site", "crio.runtime.cdi_spec_dirs = []\n"),
        ("99-node-devices.conf-", OTHER_DIRS),
    ],
)
def test_crios_later_drop_in_is_named(later, text):
    with pytest.raises(
        UnsupportedConfig, match=rf'{later} is read after .*set cdi_spec_dirs = \["/opt/cdi", "/etc/cdi"'
    ):
        crio(files={f"{CRIO_D}/{later}": text}).plan()


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ("zz-site.conf", "# cdi_spec_dirs = []\n[crio.image]\n"),
        ("10-crio.conf", OTHER_DIRS),
        # Of a folder's files the folder's name counts.
        ("99-node-devices/zz", OTHER_DIRS),
    ],
)
def test_crios_other_drop_ins_are_no_obstacle(other, text):
    assert answering(crio(files={f"{CRIO_D}/{other}": text})).plan().after == OURS


def test_what_others_wrote_into_our_drop_in_of_crios_stays():
    path = f"{CRIO_D}/99-node-devices.conf"
    theirs = OURS.replace("cdi", "# Theirs.\nlog_level = 'debug'\ncdi", 1)
    undone = crio("x", {path: theirs}).undo(path, False, None).after
    assert undone == "[crio.runtime]\n# Theirs.\nlog_level = 'debug'\n"
    with pytest.raises(
        UnsupportedConfig, match="has settings of others, so this collection does not edit it: set cdi_spec_dirs"
    ):
        answering(crio(files={path: theirs})).plan()
    inline = "crio = {runtime = {cdi_spec_dirs = ['/etc/cdi'], log_level = 'debug'}}\n"
    undone = crio("x", {path: inline}).undo(path, False, None).after
    assert tomllib.loads(undone) == {"crio": {"runtime": {"log_level": "debug"}}}
    without = "[crio.image]\npause_image = 'x'\n"
    assert crio("x", {path: without}).undo(path, False, None).after == without
    assert crio("x", {path: "]["}).undo(path, False, None).after is None
    # A comment is nothing that CRI-O reads.
    assert crio("x", {path: OURS + "# later\n"}).undo(path, False, None).after is None
    assert crio("x").undo(path, True, None) is None


@pytest.mark.parametrize("given", ["--cdi-spec-dirs=/opt/cdi,/etc/cdi", "CONTAINER_CDI_SPEC_DIRS=/opt/cdi"])
def test_crios_directories_that_no_file_sets_are_named(given):
    name, _equals, dirs = given.partition("=")
    wanted = f"{name}={dirs},{'/var/run/cdi' if '/etc' in dirs else ','.join(DIRS)}"
    with pytest.raises(
        UnsupportedConfig, match=f"{given} in crio.service overrides CRI-O's files: change it to {wanted}, or remove it"
    ):
        crio(given_dirs=given).plan()
    assert crio(given_dirs=wanted).plan() is None


def test_crio_that_drops_cdi_names_is_refused():
    (sentence,) = crio(version="1.27.4").obstacles(True)
    assert (
        "1.27.4 ignores the kubelet's CDI device names, so containers would start without their devices: upgrade it "
        "to 1.28"
    ) in sentence
    assert list(crio(version="1.27.4").obstacles(False)) == list(crio(version="1.28.0").obstacles(True)) == []
    assert (crio(version="1.32.9").tells_cdi, crio(version="1.33.0").tells_cdi) == (False, True)


def test_a_restart_ends_crios_containers_whose_conmon_is_in_its_service():
    """As with cgroupfs; with systemd's cgroups each has a scope."""
    units = ["crio.service", "crio-conmon-0123.scope", None]
    number, advice = crio().ended({"containers": [{"id": "a", "pid": 1, "unit": unit} for unit in units]})
    assert (number, advice) == (1, "set KillMode=process for crio.service (systemctl edit crio.service)")
    assert crio().keeps_containers is False
    assert crio(kill_mode="process").keeps_containers is True


@pytest.mark.parametrize(
    ("mode", "kept"), [("process", True), ("none", True), (None, True), ("control-group", False), ("mixed", False)]
)
def test_a_restart_ends_containers_whose_shims_systemd_kills(mode, kept):
    adapter = runtimes.of({**runtime("containerd"), "unit": "containerd.service", "kill_mode": mode})
    assert adapter.keeps_containers is kept
    number, advice = adapter.ended({"containers": [{"id": "a"}, {"id": "b"}]})
    assert (number, advice) == (2, "set KillMode=process for containerd.service (systemctl edit containerd.service)")
