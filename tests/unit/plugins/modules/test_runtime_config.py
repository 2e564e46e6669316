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
        "path": root,
        "content": "version = 3\n",
        "expected_sha256": None,
        "others": [{"path": drop_in, "content": "version = 3 # too\n", "expected_sha256": None}],
        "original": None,
        "undo": False,
        "check_command": ["containerd", "--config", "{staged}"],
        "unit": "containerd.service",
        "question": ["ask"],
        "spec_dirs": ["/etc/cdi"],
        "timeout": 30,
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
    paths = [module.params["path"], module.params["others"][0]["path"]]
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
    drop_in = module.params["others"][0]["path"]
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
        "path": str(directory / "99-ours"),
        "content": "ours\n",
        "program": "crio",
        "check_command": ["sh", "-c", 'cat "$0"/more/a "$0"/99-ours', "{staged}"],
    }
    output, staged = runtime_config.check(params)
    assert output == "theirs\nours\n"
    assert not (directory / "99-ours").exists()
    assert not pathlib.Path(staged).exists()
    params["check_command"] = ["sh", "-c", 'echo "$0/99-ours is wrong" >&2; exit 1', "{staged}"]
    with pytest.raises(runtime_config.Failed, match=f"^crio refuses it: {directory}/99-ours is wrong$"):
        runtime_config.check(params)
    params.update(drop_in_directory=str(tmp_path / "none"), path=str(tmp_path / "none" / "99-ours"))
    params["check_command"] = ["cat", "{staged}/99-ours"]
    assert runtime_config.check(params)[0] == "ours\n"
