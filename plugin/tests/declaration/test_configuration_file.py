"""The configuration file: every way to be wrong is one clear line."""

import hashlib
from pathlib import Path
from typing import Optional

import pytest

from node_device_plugin.declaration import DeclarationError
from node_device_plugin.declaration.configuration_file import kubelet_places, load


def test_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("resources: [{name: example.com/dev}]\nlog_level: debug\n")
    loaded = load(str(path))
    assert loaded.configuration.log_level == "debug"
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_json_below_comments_as_the_role_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text('# Written by a role.\n\t# And by nobody else.\n{"resources": [{"name": "example.com/dev"}]}\n')
    assert [resource.name for resource in load(str(path)).configuration.resources] == ["example.com/dev"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        # JSON's reader lets through what no file can hold.
        (b'{"resources": [], "log_level": "\\ud800"}', "is not valid YAML: .*invalid Unicode character escape"),
        (b"resources: [", "is not valid YAML: .*line [12]"),
        (b"\xff\xfe\xfa", "is not valid YAML"),
        ("# Gerät\nresources: []".encode("latin-1"), "is not valid YAML: .*; save the file as UTF-8$"),
        (b"", r"config\.yaml: is empty: list the plugin's resources below the key 'resources'"),
        (b"- x", r"config\.yaml: is not a mapping: list the plugin's resources below the key 'resources'"),
        (
            b'resources:\n- name: a.example/b\n  env: {"A_{id}": x, X_{index}: y}',
            "is not valid YAML: .* at line 3, column 24; write the text with {index} in quotes$",
        ),
        (b"a: {x} y\n{z}", "is not valid YAML: .* at line 1, column 8; write the text with {x} in quotes$"),
        (b"a: b: c", "mapping values are not allowed in this context at line 1, column 5$"),
        (b"a: &a [*a]\nresources: []", "is not valid YAML: 'a' contains itself at line 1, column 8"),
        (
            b"resources: []\nhttp_address: a\nresources: []",
            "the key 'resources' is set twice, again at line 3, column 1",
        ),
        (
            b'{"resources": [{"name": "a.example/b", "name": "a.example/c"}]}',
            "the key 'name' is set twice, again at line 1, column 40",
        ),
        (b"resources: !!python/object:os.system []", "is not valid YAML"),
        (
            b"node_devices_resources: []\npassword: !vault |\n  secret\n",
            "the tag '!vault' at line 2, column 11; if it is Ansible's, check the inventory with "
            "playbooks/validate.yml$",
        ),
        (b"resources: 0x" + b"f" * 6000, "a number has more than 1000 digits at line 1, column 12$"),
        (b'{"resources": %s}' % (b"9" * 6000), "a number has more than 1000 digits at line 1, column 15$"),
        (b"[" * 200000, "is not valid YAML: the document nests more than 50 levels deep"),
        (b"- " * 200000, "is not valid YAML: the document nests more than 50 levels deep"),
    ],
)
def test_a_bad_file(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(DeclarationError, match=says):
        load(str(path))


def test_the_same_key_in_several_mappings_merged_ones_too(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "resources:\n- &first {name: example.com/one, replicas: 2, env: {name: replicas}}\n"
        "- {<<: *first, name: example.com/two}\n"
    )
    loaded = load(str(path)).configuration.resources
    assert [(each.name, each.replicas) for each in loaded] == [("example.com/one", 2), ("example.com/two", 2)]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"none\.yaml: No such file"):
        load(str(tmp_path / "none.yaml"))


DEFAULT_PLACES = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/var/run/cdi")


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            "kubelet_device_plugin_dir: /dp\nkubelet_root_dir: /root\ndynamic_cdi_dir: /cdi\nresources: [{name: x}]",
            ("/dp", "/root", "/cdi"),
        ),
        ("kubelet_root_dir: 5\nresources: 5", DEFAULT_PLACES),
        ("resources: [", DEFAULT_PLACES),
        (None, DEFAULT_PLACES),
    ],
)
def test_the_kubelets_places_are_those_of_the_file_even_where_it_is_refused(
    tmp_path: Path, text: Optional[str], places: tuple[str, ...]
) -> None:
    """status finds a plugin that goes on with an older configuration, and who holds what."""
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    assert kubelet_places(str(tmp_path / "config.yaml")) == places
