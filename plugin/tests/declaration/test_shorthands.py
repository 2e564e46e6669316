"""Texts that stand for a mapping: read like the long form, written again as the long form."""

from typing import Any

import pytest
import yaml

from node_device_plugin.declaration import DeclarationError, parse_resources
from node_device_plugin.declaration.serialise import resources_to_data


def declared(text: str) -> list[dict[str, Any]]:
    return resources_to_data(parse_resources(yaml.safe_load(text)))


SHORT = """
- name: example.com/dev
  container_edits: {mounts: ["/srv/data:/data:ro,nosuid"]}
  discover: {paths: ["/dev/ttyUSB*"], nodes: [/dev/ctl, {path: "/dev/x{match1}"}]}
  devices:
    - /dev/ttyS0
    - "/dev/serial/by-id/usb-A B"
    - id: both
      nodes: [/dev/a, {path: /dev/b, mode: "0660"}]
      container_edits: {mounts: [/srv/a:/a]}
"""
LONG = """
- name: example.com/dev
  container_edits: {mounts: [{host_path: /srv/data, container_path: /data, options: [ro, nosuid]}]}
  discover: {paths: ["/dev/ttyUSB*"], nodes: [{path: /dev/ctl}, {path: "/dev/x{match1}"}]}
  devices:
    - {id: ttyS0, nodes: [{path: /dev/ttyS0}]}
    - {id: serial-by-id-usb-A_B-f57853a5, nodes: [{path: "/dev/serial/by-id/usb-A B"}]}
    - id: both
      nodes: [{path: /dev/a}, {path: /dev/b, mode: "0660"}]
      container_edits: {mounts: [{host_path: /srv/a, container_path: /a}]}
"""


def test_every_short_form_is_its_long_form_and_written_as_such() -> None:
    assert declared(SHORT) == declared(LONG) == yaml.safe_load(LONG)


@pytest.mark.parametrize(
    ("resource", "says"),
    [
        (
            "devices: [ttyS0]",
            "devices[0]: must be a mapping or its short form, not 'ttyS0'; for example, '/dev/ttyS0' is short for "
            "{id: ttyS0, nodes: [{path: /dev/ttyS0}]}",
        ),
        (
            "devices: ['/dev/ttyUSB*']",
            "devices[0] (ttyUSB-e7ee4650).nodes[0].path: must be one path without wildcards or placeholders, not "
            "'/dev/ttyUSB*': use discover for patterns ('/dev/ttyUSB*' is short for {id: ttyUSB-e7ee4650, nodes: "
            "[{path: /dev/ttyUSB*}]})",
        ),
        (
            "devices: [{id: a, nodes: [dev/x]}]",
            "devices[0] (a).nodes[0]: must be a mapping or its short form, not 'dev/x'; for example, '/dev/ttyS0' is "
            "short for {path: /dev/ttyS0}",
        ),
        (
            'devices: ["/dev/\\ud800"]',
            "devices[0]: contains a NUL character or half of a surrogate pair: remove it",
        ),
        (
            "discover: {paths: [/dev/a], nodes: ['/dev/{level}']}",
            "discover.nodes[0].path: the placeholder {level} is unknown; discovered devices have: none",
        ),
        *(
            (
                f"container_edits: {{mounts: ['{text}']}}",
                f"container_edits.mounts[0]: must be a mapping or its short form, not '{text}'; for example, "
                "'/srv/data:/data:ro' is short for {host_path: /srv/data, container_path: /data, options: [ro]}",
            )
            for text in ("/a", "data:/b", "/a:/b:", "/a:/b:ro:z")
        ),
        (
            "container_edits: {mounts: ['/a:b']}",
            "container_edits.mounts[0].container_path: must be an absolute path without '.', '..', '//' or a trailing "
            "'/', not 'b' ('/a:b' is short for {host_path: /a, container_path: b})",
        ),
    ],
)
def test_a_short_form_that_is_none_is_refused_with_the_long_form(resource: str, says: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declared(f"[{{name: example.com/dev, {resource}}}]")
    assert [str(problem) for problem in caught.value.problems] == [f"resources[0] (example.com/dev).{says}"]
