"""A runtime's configuration leaves the node without its secrets, and comes back whole."""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess
import tomllib
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import hidden as hiding
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.hidden import Hidden, UnknownToken
from ansible_collections.nodedevices.kubernetes.plugins.modules import runtime_config
from hypothesis import example, given
from hypothesis import strategies as st

CONFIGURATIONS = pathlib.Path(__file__).resolve().parents[3] / "runtimes" / "configurations"
TOML = '''version = 2 # password = "CANARY"
imports = ["/etc/containerd/conf.d/*.toml", 'b.toml']
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  containerd.default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".registry.configs."registry.example".auth]
    username = "CANARY"
    password = 'CANARY'
    auth = """CANARY
line"""
    identitytoken = \'\'\'CANARY\'\'\'
    "esc\\"aped" = "\\u0043ANARY"
  [plugins."io.containerd.grpc.v1.cri".registry.headers]
    "Authorization" = ["Basic CANARY", # and CANARY
      'CANARY']
    inline = { a = "CANARY", "b.c" = 'CANARY', d = ["CANARY"], imports = ["shown"], e = "CANARY" }
[[more]]
 path = "/CANARY"
'''
TEMPLATE = """{{ template "base" . }}
[plugins."io.containerd.grpc.v1.cri"] # {{ .Canary }}
  password = "CANARY{{ .X }}"
"""


def test_every_text_is_hidden_but_those_that_the_controller_reads():
    hidden = Hidden(seeds=())
    shown = hidden.hide(TOML)
    assert "CANARY" not in shown
    data = tomllib.loads(shown)
    cri = data["plugins"]["io.containerd.grpc.v1.cri"]
    assert (data["version"], data["imports"]) == (2, ["/etc/containerd/conf.d/*.toml", "b.toml"])
    assert (cri["enable_cdi"], cri["cdi_spec_dirs"]) == (True, ["/etc/cdi", "/var/run/cdi"])
    assert cri["containerd"]["default_runtime_name"] == "runc"
    assert list(cri["registry"]["configs"]["registry.example"]["auth"]) == [
        *("username", "password", "auth", "identitytoken", 'esc"aped'),
    ]
    assert cri["registry"]["headers"]["inline"]["imports"] == ["shown"]
    # An error of a parser names the same line.
    assert shown.count("\n") == TOML.count("\n")
    assert shown.splitlines()[-2:][0] == "[[more]]"
    assert hidden.reveal(shown) == TOML


def test_the_templates_of_k3s():
    hidden = Hidden(seeds=())
    shown = hidden.hide(TEMPLATE)
    assert "CANARY" not in shown
    assert "template" in shown
    assert hidden.reveal(shown) == TEMPLATE


def test_an_edit_of_what_is_shown_is_an_edit_of_what_is_hidden():
    hidden = Hidden(seeds=())
    edited = hidden.hide(TOML).replace("enable_cdi = true", "enable_cdi = false")
    assert hidden.reveal(edited) == TOML.replace("enable_cdi = true", "enable_cdi = false")


def test_a_value_is_known_again_however_it_is_quoted(tmp_path):
    """What containerd prints is compared with what it printed before, and in another style than files have."""
    one, two = (Hidden(seeds=()).hide(text) for text in ('a = "x"\n', "b = 'x'\n"))
    assert tomllib.loads(one)["a"] == tomllib.loads(two)["b"]
    assert "x" not in tomllib.loads(one)["a"]
    # On another node the same value has another token.
    (tmp_path / "seed").write_text("another")
    other = Hidden(seeds=(str(tmp_path / "seed"), "/none")).hide('a = "x"\n')
    assert tomllib.loads(other)["a"] != tomllib.loads(one)["a"]


def test_the_same_value_in_two_spellings_comes_back_in_each():
    text = 'a = "x"\nb = "\\u0078"\nc = \'x\'\n# x\n#x\n'
    hidden = Hidden(seeds=())
    assert hidden.reveal(hidden.hide(text)) == text


@given(st.text(alphabet=st.sampled_from("ab=\"'#[]{}\\\n,. :\u00e9")))
@example('"""')
@example('a = \'\n""""')
def test_any_text_comes_back_as_it_was(text):
    hidden = Hidden(seeds=())
    shown = hidden.hide(text)
    assert shown.count("\n") == text.count("\n")
    assert hidden.reveal(shown) == text


@pytest.mark.parametrize("path", sorted(CONFIGURATIONS.rglob("*.toml")), ids=lambda path: path.name)
def test_of_every_starting_configuration_only_texts_are_hidden(path):
    text = path.read_bytes().decode("utf-8", "replace")
    hidden = Hidden(seeds=())
    shown = hidden.hide(text)
    assert hidden.reveal(shown) == text
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert _without_texts(tomllib.loads(shown)) == _without_texts(data)


def _without_texts(data, key=""):
    if isinstance(data, dict):
        return {key: _without_texts(value, key) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_texts(value, key) for value in data]
    return "text" if isinstance(data, str) and data and key not in hiding.SHOWN else data


@pytest.mark.parametrize(
    "text",
    [
        'imports = ["/etc/containerd/conf.d/*.toml"\n[x."y".auth]\npassword = "CANARY"\n',
        '[plugins."cri".containerd\ndefault_runtime_name = "runc"\n[x.auth]\npassword = "CANARY"\n',
        '{{/* old: password = "CANARY" */}}\n',
        'password = {{ "CANARY" }}\n{{ printf `CANARY` }}\n',
        "password = CANARY\n",
        'x = """\nCANARY = 1\n"y\n',
        "x = '''\nCANARY\n",
        '[registry.configs."https://u:CANARY@h".auth]\n',
        '{"imports": ["a", "auth": "CANARY"}',
    ],
)
def test_a_text_that_is_no_toml_hides_its_secrets_too(text):
    hidden = Hidden(seeds=())
    shown = hidden.hide(text)
    assert "CANARY" not in shown
    assert shown.count("\n") == text.count("\n")
    assert hidden.reveal(shown) == text


def test_what_a_template_begins_with_is_shown():
    text = '{{ template "base" . }}\n{{- template "base.toml" . -}}\n'
    assert Hidden(seeds=()).hide(text) == text


def test_a_token_of_something_else_is_refused():
    with pytest.raises(UnknownToken, match="changed after it was read: run the play again"):
        Hidden(seeds=()).reveal(f'a = "hidden-{"0" * 24}"')


def test_messages_lose_what_looks_like_a_secret_and_keep_paths():
    hidden = Hidden(seeds=())
    hidden.hide('password = "CANARY"\nproxy = "http://u:p4ss@proxy"\nroot = "/var/lib/containerd"\nauth = "x"\n')
    said = "/var/lib/containerd: bad value CANARY, x, http://u:p4ss@proxy"
    assert hidden.scrub(said) == "/var/lib/containerd: bad value (hidden), x, (hidden)"
    assert hidden.scrub(None) is None


@pytest.fixture
def node(tmp_path):
    """A node whose root file, drop-in and ledger have a password; the root file is as we wrote it."""
    root, drop_in = tmp_path / "config.toml", tmp_path / "conf.toml"
    root.write_text('enable_cdi = true\npassword = "CANARY1"\n')
    drop_in.write_text('password = "CANARY2"\n')
    before = {"kind": "file", "content": _base64('password = "CANARY1"\n'), "mode": 384, "uid": 0, "gid": 0}
    ours = ledgers.sha256(root.read_bytes())
    entries = {
        str(root): {"kind": "file", "owner": "cdi_runtime", "sha256": ours, "mode": 384, "before": before},
        "/etc/other": {"kind": "file", "owner": "host_devices", "sha256": "0", "mode": 384, "before": before},
        "/etc/made": {"kind": "directory", "owners": ["cdi_runtime"], "mode": 493},
    }
    config = {
        "path": str(root),
        "content": root.read_text(),
        "effective": "password = 'CANARY1'\n",
        "problem": "line 2: CANARY1",
        "sha256": ours,
        "files": {},
        "imported": {str(drop_in): drop_in.read_text()},
        "exists": True,
    }
    return types.SimpleNamespace(root=root, drop_in=drop_in, entries=entries, runtime={"name": "x", "config": config})


def _base64(text):
    return base64.b64encode(text.encode()).decode()


def test_what_is_read_of_a_node_has_no_secret(node):
    hidden = Hidden(seeds=())
    runtime = hiding.hidden_runtime(node.runtime, hidden)
    entries = hiding.hidden_ledger(node.entries, "cdi_runtime", hidden)
    whole = json.dumps([runtime, entries])
    for secret in ("CANARY1", "CANARY2", node.runtime["config"]["sha256"]):
        assert secret not in whole
        assert _base64(f'password = "{secret}"\n') not in whole
    config, entry = runtime["config"], entries[str(node.root)]
    # What belongs together still does.
    assert config["sha256"] == entry["sha256"] == ledgers.sha256(config["content"].encode())
    assert base64.b64decode(entry["before"]["content"]).decode() in config["content"]
    assert config["problem"] == "line 2: (hidden)"
    assert "content" not in entries["/etc/other"]["before"]
    assert entries["/etc/made"] == node.entries["/etc/made"]
    assert hiding.hidden_runtime({"problem": "gone"}, hidden) == {"problem": "gone"}


def test_the_node_puts_back_what_its_tokens_hide(node):
    config = hiding.hidden_runtime(node.runtime, Hidden(seeds=()))["config"]
    file = {
        "path": str(node.root),
        "content": config["content"].replace("true", "false"),
        "expected_sha256": ledgers.sha256(config["content"].encode()),
        "original": None,
    }
    drop_in = config["imported"][str(node.drop_in)]
    given = {"files": [file], "drop_in": drop_in, "sources": [str(node.drop_in)]}
    params = runtime_config.revealed(given, node.entries, Hidden(seeds=()))
    (revealed,) = params["files"]
    assert revealed["content"] == node.root.read_text().replace("true", "false")
    assert revealed["expected_sha256"] == ledgers.sha256(node.root.read_bytes())
    assert params["drop_in"] == node.drop_in.read_text()
    assert revealed["original"] is None
    # Somebody writes the file in between.
    node.root.write_text('password = "CANARY3"\n')
    node.drop_in.unlink()
    with pytest.raises(UnknownToken):
        runtime_config.revealed(given, {}, Hidden(seeds=()))
    given["drop_in"] = file["content"] = None
    (now,) = runtime_config.revealed(given, {}, Hidden(seeds=()))["files"]
    assert now["expected_sha256"] == file["expected_sha256"] != ledgers.sha256(node.root.read_bytes())


def test_a_check_on_a_node_tells_no_secret(node, tmp_path):
    """By Ansible itself, with all that -vvvv prints."""
    program = tmp_path / "containerd"
    program.write_text('#!/bin/sh\ncat "$2"\ngrep -q bad "$2" || exit 0\necho \'line 2: CANARY1 is bad\' >&2\nexit 1\n')
    program.chmod(0o755)
    config = hiding.hidden_runtime(node.runtime, Hidden())["config"]

    def check(content):
        given = {"state": "checked", "program": str(program), "sources": [str(node.drop_in)]}
        given["files"] = [{"path": str(node.root), "content": content}]
        command = [
            "ansible",
            "localhost",
            "-vvvv",
            "-m",
            "nodedevices.kubernetes.runtime_config",
            "-a",
            json.dumps(given),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "CANARY" not in done.stdout + done.stderr
        return done.stdout

    effective = check(config["content"]).partition("    effective:")[2]
    assert effective.splitlines()[1].strip() == "enable_cdi = true"
    assert effective.splitlines()[2].strip().startswith('password = "hidden-')
    assert "line 2: (hidden) is bad" in check(config["content"] + "bad = true\n")
