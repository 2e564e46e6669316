"""The Python packages of a controller are named twice: for this checkout's .venv, and for ansible-builder."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def names(path):
    return set(re.findall(r"^([a-z][\w-]*)", (CHECKOUT / path).read_text(encoding="utf-8"), re.M))


def test_an_execution_environment_needs_what_a_controller_does():
    """But for ansible-core, which it has anyway, and for gRPC, which only tools and tests of this checkout import."""
    apart = {"ansible-core", "grpcio", "protobuf"}
    assert names("requirements/controller.in") - apart == names("meta/ee-requirements.txt")


def test_an_execution_environment_shares_its_packages_with_other_collections():
    text = (CHECKOUT / "meta/ee-requirements.txt").read_text(encoding="utf-8")
    # A later tomli accepts what tomllib refuses, and the nodes get it.
    assert re.findall(r"^\S*(?:==|~=|<)\S*", text, re.M) == ["tomli<2.4"]
    assert "tomli<2.4 " in (CHECKOUT / "requirements/controller.in").read_text(encoding="utf-8")
