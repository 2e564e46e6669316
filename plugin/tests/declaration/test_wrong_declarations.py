"""Wrong declarations as users write them: one problem each, which names the field and the fix."""

from pathlib import Path

import pytest

from node_device_plugin.declaration import DeclarationError
from node_device_plugin.declaration.configuration_file import load


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("replica: 2", "replica: is not a known key; did you mean replicas?"),
        ("capacty: 2", "capacty: is not a known key; did you mean capacity?"),
        (
            "colour: red",
            "colour: is not a known key; known keys: annotations, api, attributes, cdi_kind, container_edits, "
            "container_limit, devices, discover, env, health, injection, joined_env, min_devices, name, pre_start, "
            "preference, replicas",
        ),
        (
            "capacity: 4",
            "capacity: belongs to the role extended_resources, not to the plugin: declare the resource in "
            "node_devices_resources of the inventory, and remove it here",
        ),
        (
            "container_edits: {mounts: ['/srv:/data:readonly']}",
            "container_edits.mounts[0].options[0]: 'readonly' is no option of a bind mount, and has no effect: for a "
            "read-only mount, write ro",
        ),
        (
            "container_edits: {mounts: ['/srv:/data:ro,rw']}",
            "container_edits.mounts[0].options: has both ro and rw: remove one",
        ),
        (
            "container_edits: {mounts: [{host_path: /srv, container_path: /proc/x}]}",
            "container_edits.mounts[0].container_path: must not be below /proc, where the runtime refuses a mount, "
            "not '/proc/x'",
        ),
        (
            "devices: [{id: a, nodes: [{path: /sys/a, host_path: /dev/a}]}]",
            "devices[0] (a).nodes[0].path: must not be below /proc or /sys, where a container can have no device node, "
            "not '/sys/a'",
        ),
        (
            "devices: [{id: a, nodes: [{path: '/dev/kvm '}]}]",
            "devices[0] (a).nodes[0].path: must be printable, without leading or trailing spaces, not '/dev/kvm '",
        ),
        (
            "devices: [{id: a, nodes: [{path: '/dev/kvm:/dev/kvm:rwm'}]}]",
            "devices[0] (a).nodes[0].path: must be one path, not '/dev/kvm:/dev/kvm:rwm': write {path: IN_CONTAINER, "
            "host_path: ON_HOST}, and permissions if needed",
        ),
        (
            'devices: [/dev/a], pre_start: {command: [/bin/reset, "{path}"]}',
            "pre_start.command[1]: {path} would stay literal: the command has the device's values in its environment, "
            "such as DEVICE_ID",
        ),
        (
            'discover: {usb: [{vendor: "0403"}]}, health: {command: [/bin/check, "{serial}"]}',
            "health.command[1]: {serial} would stay literal: the command has the device's values in its environment, "
            "such as DEVICE_ID",
        ),
        (
            'devices: [/dev/a], container_edits: {hooks: [{name: poststop, path: "/bin/{id}"}]}',
            "container_edits.hooks[0] (poststop).path: {id} would stay literal: placeholders work only in the "
            "resource's env and annotations",
        ),
        *(
            (
                f"devices: [/dev/a], env: {{DEV: '{near}'}}",
                f"env.DEV: {near!r} would stay as it is: write {{path}}",
            )
            for near in ("{path", "path}", "{ path }", "{path!r}")
        ),
        (
            "discover: {udev: [{subsystem: tty, properties: {DEVLINKS: x}}]}",
            "discover.udev[0].properties.DEVLINKS: is no property in udev's database, and would match no device: use "
            "discover.paths",
        ),
        (
            "discover: {pci: [{driver: /sys/bus/pci/drivers/vfio-pci}]}",
            "discover.pci[0].driver: must be a name without '/', not '/sys/bus/pci/drivers/vfio-pci'",
        ),
        ("mounts: ['/a:/b']", "mounts: is not a known key; did you mean container_edits.mounts?"),
        ("devices: [{id: a, path: /dev/a}]", "devices[0] (a).path: is not a known key; did you mean nodes[0].path?"),
        ("devices: [{id: a, node: [/dev/a]}]", "devices[0] (a).node: is not a known key; did you mean nodes?"),
        (
            "devices: /dev/a",
            "devices: must be a list, not text (write it in brackets: [...])",
        ),
        ("devices: {id: a, nodes: [/dev/a]}", "devices: must be a list, not a mapping (write a list, e.g. - id: a)"),
        ("devices: {kvm: /dev/kvm}", "devices: must be a list, not a mapping (write a list, e.g. - id: kvm)"),
        ("devices: {/dev/kvm}", "devices: must be a list, not a mapping (write it in brackets: [...])"),
        (
            "discover: {paths: ['/dev/tty[0-9][z-a]']}",
            "discover.paths[0]: the range in '[z-a]' ends before it begins: swap its ends",
        ),
        (
            "devices: [ttyS0]",
            "devices[0]: must be a mapping or its short form, not 'ttyS0'; for example, '/dev/ttyS0' is short for "
            "{id: ttyS0, nodes: [{path: /dev/ttyS0}]}",
        ),
        (
            "devices: [/dev/a, {id: a, nodes: [/dev/b]}]",
            "devices[1] (a).id: 'a' is already the id of resources[0] (example.com/dev).devices[0] (a): choose "
            "another, e.g. 'dev-a', because the kubelet knows devices by id only",
        ),
        (
            "devices: [{id: a, nodes: [{path: /dev/a, mode: 0660}]}]",
            "devices[0] (a).nodes[0].mode: must be text, not a number (write it in quotes: YAML reads 0660 as the "
            "number 432)",
        ),
        (
            "devices: [{id: 0, nodes: [/dev/a]}]",
            "devices[0].id: must be text, not a number (write it in quotes, so that YAML reads text)",
        ),
        (
            "devices: [/dev/a], env: {DEV_0: {path}}",
            "env.DEV_0: must be text, not a mapping (write the text in quotes: YAML reads braces as a mapping)",
        ),
        ("devices: [/dev/a], env: [DEV=x]", "env: must be a mapping, not a list (write NAME: value)"),
        (
            "devices: [/dev/a, /dev/b], env: {DEV: '{path}'}",
            "env.DEV: a container may get several devices, which would all set this variable: add {index} to the name, "
            "move the variable to joined_env, or set container_limit: 1",
        ),
        (
            "container_edits: {env: {A: b}}",
            "container_edits.env: must be a list, not a mapping (write each element as text)",
        ),
        (
            "discover: {paths: '/dev/ttyUSB*'}",
            "discover.paths: must be a list, not text (write it in brackets: [...])",
        ),
        ("discover: {path: ['/dev/ttyUSB*']}", "discover.path: is not a known key; did you mean paths?"),
        (
            "discover: {pci: ['10de:1eb8']}",
            "discover.pci[0]: must be a mapping, not text (its keys: vendor, device, class_code, driver)",
        ),
        (
            "discover: {cdi: nvidia.com/gpu}",
            "discover.cdi: must be a mapping, not text (its keys: kind, match, exclude)",
        ),
        ("pre_start: {timeout: 5}", "pre_start.command: is missing"),
        (
            "pre_start: {command: /bin/reset, timeout: 5}",
            "pre_start.command: must be a list, not text (write it in brackets: [...])",
        ),
        (
            "pre_start: {command: [5]}",
            "pre_start.command[0]: must be text, not a number (write it in quotes, so that YAML reads text)",
        ),
        (
            "health: {command: 5, timeout: 3}",
            "health.command: must be a list, not a number (write it in brackets: [...])",
        ),
        (
            "health: {command: [check]}",
            "health.command[0]: must be the absolute path of a program",
        ),
        (
            "gid: 44, devices: [/dev/ttyS0]",
            "gid: belongs to a device node: write it in devices[0].nodes[0], or in discover for discovered devices",
        ),
    ],
)
def test_a_mistake_is_one_problem_with_field_and_fix(tmp_path: Path, keys: str, says: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"resources: [{{name: example.com/dev, {keys}}}]")
    with pytest.raises(DeclarationError) as caught:
        load(str(path))
    assert [str(problem) for problem in caught.value.problems] == [f"resources[0] (example.com/dev).{says}"]


def test_a_variable_of_the_inventory_is_no_key_of_the_plugin(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("{node_devices_resources_serial: [], resources: []}")
    with pytest.raises(DeclarationError) as caught:
        load(str(path))
    assert str(caught.value) == (
        "node_devices_resources_serial: is a variable of the inventory, not a key of this file: list the plugin's "
        "resources below 'resources'"
    )


@pytest.mark.parametrize(
    "keys",
    [
        "container_edits: {mounts: ['/srv:/data:rro,rbind,nosuid,rprivate']}",
        "container_edits: {mounts: ['/srv:/proc/cpuinfo:ro', '/proc:/proc', '/srv:/process']}",
        "container_edits: {mounts: [{host_path: tmpfs, container_path: /t, type: tmpfs, options: [size=64k]}]}",
        "devices: [{id: a, nodes: ['/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0']}]",
        """devices: [/dev/a], env: {DEV: '{"path": 1, "id": {"a": "b"}}', OTHER: '{path}} {'}""",
        'devices: [/dev/a], health: {command: [/bin/awk, "{print}"]}',
    ],
)
def test_what_only_looks_wrong_is_right(tmp_path: Path, keys: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("resources: [{name: example.com/dev, %s}]" % keys)
    load(str(file))


def test_a_key_cannot_forge_a_line_of_the_output(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text('resources: [{name: "a\\e[2J", devices: [{id: "a\\nb: valid", foo: 1}, {id: "a\\nb: valid"}]}]')
    with pytest.raises(DeclarationError) as caught:
        load(str(path))
    assert all(str(problem).isprintable() for problem in caught.value.problems)
    assert r"resources[0] (a\x1b[2J).devices[0] (a\nb: valid).foo: is not a known key" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("true", "true"),
        (".nan", ".nan"),
        ("-.inf", "-.inf"),
        ("1.5", "1.5"),
        ("2024-01-01", "2024-01-01"),
        ("!!binary aGk=", "binary data"),
        ("!!set {/dev/kvm}", "a set"),
        ("[a]", "a list"),
        ("{a: b}", "a mapping"),
        ("'8'", "the text '8' (write it without quotes)"),
    ],
)
def test_a_value_is_shown_in_the_words_of_yaml(tmp_path: Path, value: str, says: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{{resources: [], recovery_delay: {value}}}")
    with pytest.raises(DeclarationError) as caught:
        load(str(path))
    assert str(caught.value) == f"recovery_delay: must be a whole number, not {says}"


@pytest.mark.parametrize(
    "keys",
    [
        "env: {PIN: 471123}",
        "env: {PIN: 0471}",
        "env: {PIN: {s471}}",
        "env: s471",
        "env: {vendor: 0471}",
        "joined_env: {PIN: 471.123}",
        "annotations: {PIN: 0471}",
        "devices: [{id: a, nodes: [/dev/a], properties: {PIN: 0471, vendor: 0471, WHEN: 0471-01-01}}]",
        "container_edits: {env: 'PIN=471'}",
        "container_edits: 'PIN=471'",
        "container_edits: {env: ['PIN: 471']}",
        "container_edits: {env: ['PIN: s471==']}",
        "container_edits: {env: ['s471 PIN=1']}",
        "container_edits: {env: [471]}",
        "container_edits: {hooks: [{name: poststop, path: /x, env: ['PIN 471']}]}",
        "container_edits: {hooks: [{name: poststop, path: /x, args: [--pin, 471]}]}",
        "pre_start: /bin/unlock --pin=471",
        "pre_start: {command: /bin/unlock --pin=471}",
        "health: {command: [/bin/unlock, 0471]}",
    ],
)
def test_a_message_quotes_no_value_that_may_be_a_secret(tmp_path: Path, keys: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"resources: [{{name: example.com/dev, {keys}}}]")
    with pytest.raises(DeclarationError) as caught:
        load(str(path))
    assert "must " in str(caught.value)
    assert "471" not in str(caught.value)
    # 0471 is 313 for YAML.
    assert "313" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "resources: [{name: example.com/dev, env: {ON: x}}]",
            "resources[0] (example.com/dev).env: the key true must be text: YAML reads a key such as ON, yes or 1 as "
            "true or a number, so write it in quotes",
        ),
        (
            "resources: [{name: example.com/dev, env: {1: x}}]",
            "resources[0] (example.com/dev).env: the key 1 must be text: YAML reads a key such as ON, yes or 1 as "
            "true or a number, so write it in quotes",
        ),
        ("resources: [{name: example.com/dev, health: {on: x}}]", "resources[0] (example.com/dev).health.true: is not"),
        ("resources:", "resources: is empty, but must be a list"),
        ("resources: [{name: }]", "resources[0].name: is empty, but must be text"),
    ],
)
def test_keys_and_values_that_yaml_reads_otherwise(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(DeclarationError) as caught:
        load(str(path))
    assert str(caught.value).startswith(says)
