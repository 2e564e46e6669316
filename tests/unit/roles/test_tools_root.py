"""Where the plugin's environments are: one variable says it to every role and playbook."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
ROLES = CHECKOUT / "roles"
ROOT, COMMAND = "/srv/tools", "current/bin/node-device-plugin"
WITH_A_COMMAND = ("cdi_runtime", "cdi_specs", "device_plugin", "extended_resources", "host_devices")


def value(text, variables):
    return NativeEnvironment().from_string(text).render(variables)


def defaults(role):
    return yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text())


@pytest.mark.parametrize("role", WITH_A_COMMAND)
def test_each_role_finds_the_command_there(role):
    text = defaults(role)[f"{role}_command"]
    assert value(text, {"node_tools_root": ROOT}) == f"{ROOT}/{COMMAND}"
    assert value(text, {}) == f"{defaults('node_tools')['node_tools_root']}/{COMMAND}"


def test_verification_finds_it_where_there_is_no_link_to_it():
    text = yaml.safe_load((ROLES / "verification" / "vars" / "main.yml").read_text())["verification_tool"]
    assert value(text, {"node_tools_root": ROOT, "node_tools_command": ""}) == f"{ROOT}/{COMMAND}"
    assert value(text, {"node_tools_root": ROOT}) == defaults("node_tools")["node_tools_command"]


@pytest.mark.parametrize(
    "path", [*ROLES.glob("*/*/*"), *CHECKOUT.glob("playbooks/*.yml"), *CHECKOUT.glob("playbooks/*/*.yml")], ids=str
)
def test_nobody_else_names_the_directory(path):
    """Where it stands, it is what the variable is if nobody sets it."""
    without = re.sub(r"node_tools_root \\?\| default\('/opt/node-devices'\)", "", path.read_text())
    found = re.findall(r"^.*/opt/node-devices.*$", without, re.MULTILINE)
    allowed = ["node_tools_root: /opt/node-devices", "default: /opt/node-devices"] if "node_tools" in str(path) else []
    assert [line for line in map(str.strip, found) if line not in allowed] == []
