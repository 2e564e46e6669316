"""What the module makes of its options: one plan for all its files."""

from __future__ import annotations

import pathlib
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import launch
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Places
from ansible_collections.nodedevices.kubernetes.plugins.modules import runtime_config


@pytest.fixture
def module(tmp_path):
    root, drop_in = str(tmp_path / "config.toml"), str(tmp_path / "conf.d" / "cdi.toml")
    given = {
        "files": [
            {"path": root, "content": "version = 3\n", "expected_sha256": None, "original": None},
            {"path": drop_in, "content": "version = 3 # too\n", "expected_sha256": None, "original": None},
        ],
        "undo": False,
        "check_command": ["containerd", "--config", "{staged}"],
        "unit": "containerd.service",
        "question": ["ask"],
        "spec_dirs": ["/etc/cdi"],
    }
    return types.SimpleNamespace(
        params=given,
        check_mode=False,
        selinux_enabled=lambda: True,
        selinux_default_context=lambda path: ["system_u", "object_r", "container_config_t", "s0"],
    )


def test_all_files_are_one_transaction(module, tmp_path, monkeypatch):
    plans = []
    outcome = launch.Outcome("x", None, 0.5)
    monkeypatch.setattr(launch, "carry_out", lambda places, plan: plans.append(plan) or outcome)
    paths = [file["path"] for file in module.params["files"]]
    assert runtime_config.apply(module, module.params, Places(str(tmp_path))) == {
        "seconds": 0.5,
        "written": paths,
        "removed": [],
    }
    (plan,) = plans
    assert [file.content for file in plan.files] == [b"version = 3\n", b"version = 3 # too\n"]
    assert [directory.path for directory in plan.directories] == [str(tmp_path / "conf.d")]
    assert {each.context for each in (*plan.files, *plan.directories)} == {"system_u:object_r:container_config_t:s0"}
    assert plan.check == ["containerd", "--config", "{staged}"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_directory_that_cannot_be_written_is_said_before_anything_is_tried(module, tmp_path, monkeypatch, check_mode):
    """Of drop-ins, as one that is mounted read-only: check mode does not promise what a run could not do."""
    plans = []
    monkeypatch.setattr(launch, "carry_out", lambda places, plan: plans.append(plan) or launch.Outcome("x", None, 0.5))
    module.check_mode = check_mode
    drop_in = module.params["files"][1]["path"]
    monkeypatch.setattr(runtime_config, "obstacle", {drop_in: "its file system is mounted read-only"}.get)
    with pytest.raises(runtime_config.Failed, match=f"^{drop_in}: its file system is mounted read-only; nothing was"):
        runtime_config.apply(module, module.params, Places(str(tmp_path)))
    assert plans == []
    monkeypatch.setattr(runtime_config, "obstacle", lambda path: None)
    assert bool(runtime_config.apply(module, module.params, Places(str(tmp_path)))) is bool(plans) is not check_mode
    assert list(tmp_path.iterdir()) == []


def test_what_was_undone_is_a_failure_with_its_reason(module, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "carry_out", lambda places, plan: launch.Outcome("x", "it did not start", None))
    with pytest.raises(runtime_config.Failed, match="it did not start"):
        runtime_config.apply(module, module.params, Places(str(tmp_path)))


def test_a_directory_of_drop_ins_is_read_with_the_new_one(tmp_path):
    directory = tmp_path / "crio.conf.d"
    (directory / "more").mkdir(parents=True)
    (directory / "more" / "a").write_text("theirs\n")
    params = {
        "drop_in_directory": str(directory),
        "files": [{"path": str(directory / "99-ours"), "content": "ours\n"}],
        "program": "crio",
        "check_command": ["sh", "-c", 'cat "$0"/more/a "$0"/99-ours', "{staged}"],
    }
    output, staged = runtime_config.check(params)
    assert output == "theirs\nours\n"
    assert not (directory / "99-ours").exists()
    assert not pathlib.Path(staged).exists()
    params["check_command"] = ["sh", "-c", 'echo "$0/99-ours is wrong" >&2; exit 1', "{staged}"]
    with pytest.raises(
        runtime_config.Failed, match=f"^crio rejects the new configuration: {directory}/99-ours is wrong$"
    ):
        runtime_config.check(params)
    params["files"] = [{"path": str(tmp_path / "none" / "99-ours"), "content": "ours\n"}]
    params["drop_in_directory"] = str(tmp_path / "none")
    params["check_command"] = ["cat", "{staged}/99-ours"]
    assert runtime_config.check(params)[0] == "ours\n"


class Ended(Exception):
    """The module, as it ends."""


def run_module(module, monkeypatch, places, **given):
    """The whole module with these options more; gives its result, or the message with which it fails."""

    def end(**answer):
        raise Ended(answer)

    module.params.update(sources=[], drop_in=None, drop_in_directory=None, beside=False, **given)
    module.exit_json = module.fail_json = end
    monkeypatch.setattr(runtime_config, "AnsibleModule", lambda **_arguments: module)
    monkeypatch.setattr(runtime_config, "Places", lambda: places)
    monkeypatch.setattr(runtime_config.play_lock, "renew", lambda _module: None)
    with pytest.raises(Ended) as caught:
        runtime_config.main()
    (answer,) = caught.value.args
    return answer


def test_a_configuration_that_changed_since_it_was_read_fails_the_module_and_is_not_written(
    module, tmp_path, monkeypatch
):
    """The node hid a password, of which somebody has written another one in between."""
    (file,) = module.params["files"] = module.params["files"][:1]
    root = pathlib.Path(file["path"])
    root.write_text('password = "first"\n')
    file["content"] = runtime_config.Hidden().hide(root.read_text())
    root.write_text('password = "second"\n')
    answer = run_module(module, monkeypatch, Places(str(tmp_path / "ours")), state="applied")
    assert answer["msg"].endswith("the runtime's configuration changed after it was read: run the play again")
    assert root.read_text() == 'password = "second"\n'


def test_the_module_fails_with_what_the_runtime_says_of_a_text_but_for_secrets(module, tmp_path, monkeypatch):
    program, path = tmp_path / "containerd", module.params["files"][0]["path"]
    program.write_text('#!/bin/sh\necho "$2: secret is no key" >&2\nexit 1\n')
    program.chmod(0o755)
    pathlib.Path(path).write_text('password = "secret"\n')
    answer = run_module(module, monkeypatch, Places(str(tmp_path / "ours")), state="checked", program=str(program))
    assert answer == {"msg": f"{program} rejects the new configuration: {path}: (hidden) is no key"}


@pytest.mark.parametrize("check_mode", [False, True])
def test_where_nothing_was_cut_off_the_module_has_nothing_to_recover(module, tmp_path, monkeypatch, check_mode):
    module.check_mode = check_mode
    answer = run_module(module, monkeypatch, Places(str(tmp_path / "ours")), state="recovered")
    assert answer == {"changed": False, "error": None}
