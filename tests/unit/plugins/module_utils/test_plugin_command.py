"""What a module asks the plugin's command on the node."""

from __future__ import annotations

import json
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import plugin_command

HELD = {"resource": "example.com/lamp", "device": "l0", "pod": "c1", "all_host_paths": [], "by_our_cdi": True}
PLACES = {"kubelet_root": None, "device_plugin_dir": None, "cdi_dir": None}


@pytest.fixture
def ask():
    """Asks for the holders; returns the answer and the command. said: the command's output, or an error."""

    def asked(said, facts=None, **params):
        commands = []

        def run_command(command):
            commands.append(command)
            if isinstance(said, Exception):
                raise said
            return 0, said, "no such option"

        node = types.SimpleNamespace(run_command=run_command, facts=facts or {})
        return plugin_command.holders(node, {"command": "/bin/plugin", **PLACES, **params}), commands

    return asked


def test_the_places_of_the_task_and_else_of_the_node(ask):
    answer = {"held": [HELD], "allocatable": {"example.com/lamp": ["l0"]}, "source": "kubelet"}
    found, commands = ask(json.dumps(answer), {"kubelet_root": "/k"}, cdi_dir="/run/cdi")
    assert found == answer
    assert commands == [["/bin/plugin", "holders", "--kubelet-root", "/k", "--cdi-dir", "/run/cdi", "-o", "json"]]
    assert "/other" in ask(json.dumps(answer), {"kubelet_root": "/k"}, kubelet_root="/other")[1][0]


def test_without_a_command_nobody_is_asked(ask):
    assert ask(OSError(), command=None) == ({"held": [], "allocatable": {}}, [])


def test_without_the_installed_command_nothing_goes_where_a_kubelet_gave_devices(ask, tmp_path):
    assert ask(OSError(), device_plugin_dir=str(tmp_path))[0] == {"held": [], "allocatable": {}}
    (tmp_path / "kubelet_internal_checkpoint").touch()
    with pytest.raises(plugin_command.CommandMissing) as caught:
        ask(OSError(), device_plugin_dir=str(tmp_path))
    assert str(caught.value) == (
        "/bin/plugin is not installed on the node: run role node_tools (site.yml) first; without this command, the "
        f"play cannot tell whether a pod holds a device that would be removed, and {tmp_path}/"
        "kubelet_internal_checkpoint exists, so the kubelet may have allocated one"
    )


def test_the_kubelets_own_directory_is_the_default(ask, monkeypatch):
    asked = []
    monkeypatch.setattr(plugin_command.os.path, "exists", lambda path: asked.append(path))
    ask(OSError())
    assert asked == ["/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"held": []},
        {"allocatable": {}},
        {"held": ["x"], "allocatable": {}},
        *({"held": [{**HELD, key: 1}, {k: v for k, v in HELD.items() if k != key}], "allocatable": {}} for key in HELD),
    ],
)
def test_an_answer_without_its_keys_is_an_error(ask, answer):
    with pytest.raises(plugin_command.CommandError, match=r"the answer of /bin/plugin holders has a wrong form: run"):
        ask(json.dumps(answer))


def test_a_command_that_fails_is_said(ask):
    with pytest.raises(plugin_command.CommandError, match=r"^/bin/plugin holders failed: no such option$"):
        ask("no JSON")
