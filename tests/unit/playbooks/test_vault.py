"""Values from Ansible Vault, by Ansible itself: no output has them, and later tasks still do. The node is this machine.

All runs are in check mode, so that nothing is written.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
PROGRAMS = pathlib.Path(sys.executable).parent
SECRETS = {"of_value": "CANARY-of-a-value", "of_file": "CANARY-of-a-file", "of_line": 'CANARY-1234\nCANARY-5678 "q"\n'}
RESOURCE = {
    "name": "example.com/meter",
    "env": {"TOKEN": "{{ of_value }}", "ADDRESS": "https://user:{{ of_file }}@meter", "PEM": "{{ of_line }}"},
    "devices": [{"id": "a", "nodes": [{"path": "/dev/null"}], "container_edits": {"env": ["A=x-{{ of_template }}"]}}],
}
DECLARE = [
    {"nodedevices.kubernetes.declaration": {}, "register": "read"},
    # What later tasks get.
    {"ansible.builtin.debug": {"msg": "{{ read.resources | to_json | hash('sha256') }}"}},
]
WRITE = {
    "nodedevices.kubernetes.managed_files": {
        "owner": "somebody",
        "files": [
            {"path": "/nowhere/a.yaml", "content": "{{ read.resources | to_nice_json }}\nPIN: '{{ pin }}' of 7 pins\n"},
            {"path": "/nowhere/b.yaml", "content": "{{ of_value | b64encode }} {{ read.resources | to_nice_yaml }}"},
        ],
    }
}


@pytest.fixture
def play(tmp_path):
    """Runs tasks with all that Ansible can print: play(tasks, resource) gives the exit code and the output."""
    password = tmp_path / "password"
    password.write_text("vault")
    variables = tmp_path / "group_vars" / "all"
    variables.mkdir(parents=True)

    def vault(*arguments, text):
        command = [PROGRAMS / "ansible-vault", *arguments, "--vault-password-file", password]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=tmp_path)
        return done.stdout

    inline = [vault("encrypt_string", "--stdin-name", name, text=SECRETS[name]) for name in ("of_value", "of_line")]
    inline.append(vault("encrypt_string", "--stdin-name", "pin", text="7"))
    (variables / "inline.yml").write_text("\n".join(inline))
    encrypted = yaml.safe_dump(
        {"of_file": SECRETS["of_file"], "of_template": "CANARY-{{ of_where }}", "of_where": "template"}
    )
    (variables / "file.yml").write_text(vault("encrypt", "--output", "-", "-", text=encrypted))

    def run(tasks, resource=RESOURCE):
        here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        host = {**here, "node_devices_resources": [resource]}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"a": host}}}))
        (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
        command = [PROGRAMS / "ansible-playbook", "-i", "hosts.yml", "play.yml", "-vvvv", "--diff", "--check"]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".ansible" / "collections"),
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
            "ANSIBLE_REMOTE_TMP": str(tmp_path / "remote"),
        }
        done = subprocess.run(
            [*command, "--vault-password-file", password],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def leaks(said):
    """The lines with a secret, as it is or in base64."""
    encoded = base64.b64encode(SECRETS["of_value"].encode()).decode()
    return [line for line in said.splitlines() if "CANARY" in line or encoded in line]


def test_diffs_and_results_have_no_vaulted_value_and_later_tasks_have_it(play):
    code, said = play([*DECLARE, WRITE])
    assert code == 0, said
    assert leaks(said) == []
    # The diff is there, with all else.
    for line in (
        '+            "TOKEN": "(vaulted)"',
        '+            "ADDRESS": "https://user:(vaulted)@meter"',
        "+        TOKEN: (vaulted)",
        "+PIN: '(vaulted)' of 7 pins",
        "A=x-(vaulted)",
        "example.com/meter",
    ):
        assert line in said, said


def test_what_later_tasks_get_is_the_value(play):
    code, said = play(
        [DECLARE[0], {"ansible.builtin.debug": {"msg": "{{ read.resources[0].env.TOKEN | hash('sha256') }}"}}]
    )
    assert code == 0, said
    assert hashlib.sha256(SECRETS["of_value"].encode()).hexdigest() in said


def test_an_error_message_has_no_vaulted_value(play):
    code, said = play(DECLARE, {**RESOURCE, "name": "{{ of_value }} {{ of_file }}"})
    assert code == 2, said
    assert leaks(said) == []
    assert "node_devices_resources[0] ((vaulted) (vaulted)).name" in said


def test_without_a_vault_nothing_is_hidden(tmp_path, play):
    for path in (tmp_path / "group_vars" / "all").iterdir():
        path.unlink()
    tasks = [
        DECLARE[0],
        {"nodedevices.kubernetes.managed_files": {"owner": "x", "files": [{"path": "/x", "content": "C"}]}},
    ]
    plain = {**RESOURCE, "env": {"TOKEN": "CANARY"}, "devices": [{"id": "a"}]}
    code, said = play(tasks, plain)
    assert code == 0, said
    assert '"TOKEN": "CANARY"' in said or "TOKEN: CANARY" in said
    assert "vaulted" not in said
