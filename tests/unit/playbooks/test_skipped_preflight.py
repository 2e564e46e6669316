"""--skip-tags preflight: the roles need the checks, and a sentence says so before anything is written."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("of_role", [False, True])
def test_the_sentence_names_the_tag(tmp_path, of_role):
    (tmp_path / "hosts.yml").write_text(
        yaml.safe_dump({"node_devices": {"hosts": {"a": {"ansible_host": "none.invalid"}}}})
    )
    book = CHECKOUT / "playbooks" / "site.yml"
    if of_role:
        book = tmp_path / "own.yml"
        book.write_text(
            yaml.safe_dump([{"hosts": "all", "gather_facts": False, "roles": ["nodedevices.kubernetes.device_plugin"]}])
        )
    command = ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), str(book), "--skip-tags", "preflight"]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=120)
    said = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 2, said
    assert "tag preflight is skipped, but" in said
    assert "remove preflight from --skip-tags" in said
    assert "'device_plugin_node' is undefined" not in said
    assert "UNREACHABLE" not in said
