"""The roles' options: described, with the defaults that the roles have, and the declaration's from its schema."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
ROLES = {path.name: path for roles in ("roles", "lab/roles") for path in (CHECKOUT / roles).iterdir() if path.is_dir()}


@pytest.mark.parametrize("name", sorted(ROLES))
def test_options_and_defaults_agree(name):
    defaults = yaml.safe_load((ROLES[name] / "defaults" / "main.yml").read_text())
    specs = yaml.safe_load((ROLES[name] / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    options = {option: spec for entry in specs.values() for option, spec in entry["options"].items()}
    own = {option: spec.get("default") for option, spec in options.items() if option.startswith(name + "_")}
    assert own == defaults


@pytest.mark.parametrize("name", sorted(ROLES))
def test_described(name):
    assert (ROLES[name] / "README.md").read_text().startswith(f"# {name}\n")


def test_the_declarations_options_are_the_schemas():
    command = [sys.executable, str(CHECKOUT / "tools" / "generate_argument_specs"), "--check"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""
