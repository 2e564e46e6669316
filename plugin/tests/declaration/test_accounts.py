"""Names of users and groups become the node's numbers, in the parsed declaration."""

from __future__ import annotations

import pytest

from node_device_plugin.declaration import DeclarationError, accounts, parse_configuration

NAMED = {
    "name": "devices.example.com/named",
    "devices": [
        {"id": "a", "nodes": [{"path": "/dev/a", "uid": "games", "gid": "dialout"}, {"path": "/dev/b", "gid": 7}]},
        {"id": "c", "nodes": ["/dev/c"]},
    ],
    "discover": {"paths": ["/dev/ttyUSB*"], "gid": "dialout"},
}
PLAIN = {"name": "devices.example.com/plain", "devices": ["/dev/d"]}
NUMBERS = {"users": {"games": 5}, "groups": {"dialout": 20}}


def read(*resources):
    return parse_configuration({"resources": list(resources), "log_level": "debug"}, has_names=True)


def test_every_name_has_its_field():
    resources = read(NAMED, PLAIN).resources
    assert list(accounts.named(resources)) == [
        ("devices.example.com/named.discover.gid", "groups", "dialout"),
        ("devices.example.com/named.devices (a).nodes[0].uid", "users", "games"),
        ("devices.example.com/named.devices (a).nodes[0].gid", "groups", "dialout"),
    ]
    assert accounts.names(resources) == {"users": ["games"], "groups": ["dialout"]}
    assert accounts.names(read(PLAIN).resources) == {}


def test_numbers_replace_names_alone():
    configuration, problems = accounts.with_numbers(read(NAMED, PLAIN), NUMBERS)
    devices = [{**NAMED["devices"][0]}, NAMED["devices"][1]]
    devices[0]["nodes"] = [{"path": "/dev/a", "uid": 5, "gid": 20}, {"path": "/dev/b", "gid": 7}]
    numbered = {**NAMED, "devices": devices, "discover": {"paths": ["/dev/ttyUSB*"], "gid": 20}}
    assert (configuration, problems) == (read(numbered, PLAIN), [])
    assert accounts.with_numbers(configuration, {}) == (configuration, [])


@pytest.mark.parametrize("numbers", [{}, {"groups": {"dialout": 20}}, {**NUMBERS, "users": {"games": None}}])
def test_with_an_unknown_name_all_names_stay(numbers):
    configuration, problems = accounts.with_numbers(read(NAMED), numbers)
    assert configuration == read(NAMED)
    assert str(next(each for each in problems if each.where.endswith("uid"))) == (
        "devices.example.com/named.devices (a).nodes[0].uid: the node has no user 'games': create the user there, or "
        "give its number"
    )


def test_root_s_number_is_a_number():
    configuration, problems = accounts.with_numbers(read(NAMED), {"users": {"games": 0}, "groups": {"dialout": 0}})
    assert (configuration.resources[0].devices[0].nodes[0].uid, problems) == (0, [])


def test_a_configuration_file_has_no_names():
    with pytest.raises(DeclarationError, match="must be a number in the plugin's configuration"):
        parse_configuration({"resources": [NAMED]})
