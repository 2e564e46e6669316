"""The cookbook: its pages show the files that scenario `cookbook` runs, and the scenario runs every recipe."""

from __future__ import annotations

import collections
import re

import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration
from documented_blocks import PAGES, ROOT, blocks, text_of

from node_device_plugin.cli.main import main
from node_device_plugin.declaration import parse_configuration
from node_device_plugin.declaration.names import class_name

COOKBOOK = ROOT / "examples" / "cookbook"
RECIPES = sorted(path.parent.name for path in COOKBOOK.glob("*/declaration.yml"))
FILES = sorted(str(path.relative_to(ROOT)) for path in COOKBOOK.rglob("*") if path.is_file())
#: The file to which a page tells the reader to copy a recipe's file.
COPIED = re.compile(r"# inventories/mine/(?:group_vars/workers/([\w-]+)\.yml|(templates/\S+))$")
#: Text by file, as the pages show it.
SHOWN = collections.defaultdict(list)
recipe = ""
for page in PAGES:
    for block in blocks(text_of(page)):
        first, _, text = block.text.partition("\n")
        if first.startswith("# examples/cookbook/"):
            SHOWN[first.removeprefix("# ")].append(text)
        elif page.startswith("docs/cookbook/") and (copied := COPIED.match(first)):
            recipe = copied[1] or recipe  # a template follows its declaration
            if recipe in RECIPES:
                SHOWN[f"examples/cookbook/{recipe}/{copied[2] or 'declaration.yml'}"].append(text)


def test_there_are_recipes():
    assert len(RECIPES) > 20
    assert set(SHOWN) <= set(FILES)
    assert f"[{len(RECIPES)} recipes]" in text_of("CHANGELOG.md")


@pytest.mark.parametrize("path", FILES)
def test_one_page_shows_the_file_as_it_is(path):
    assert SHOWN[path] == [(ROOT / path).read_text()]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_scenario_declares_the_recipe_as_it_is(recipe):
    link = ROOT / "molecule/cookbook/inventory/group_vars/lab_nodes" / f"{recipe}.yml"
    assert link.resolve() == COOKBOOK / recipe / "declaration.yml"


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("command", ["validate", "discover", "cdi render"])
def test_the_commands_read_the_file_as_it_is(recipe, command, capsys):
    assert main([*command.split(), str(COOKBOOK / recipe / "declaration.yml")]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_pod_requests_what_its_recipe_declares(recipe):
    variables, pod, sees = (
        yaml.safe_load((COOKBOOK / recipe / name).read_text()) for name in ("declaration.yml", "pod.yml", "sees.yml")
    )
    names = {each["name"] for name, value in variables.items() if name.startswith(declaration.PREFIX) for each in value}
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"].keys() == names
    assert "devices" in sees
    assert sees.keys() <= {"pods", "devices", "variables", "mounts", "by_claim"}
    assert "by_claim" not in sees or (COOKBOOK / recipe / "claim.yml").exists()


@pytest.mark.parametrize("recipe", [name for name in RECIPES if (COOKBOOK / name / "claim.yml").exists()])
def test_a_claim_requests_what_its_recipe_declares_with_the_other_api(recipe):
    variables = yaml.safe_load((COOKBOOK / recipe / "declaration.yml").read_text())
    (resource,) = next(value for name, value in variables.items() if name.startswith(declaration.PREFIX))
    configuration = parse_configuration({"resources": [{**resource, "api": "dra"}]})
    template, pod = yaml.safe_load_all((COOKBOOK / recipe / "claim.yml").read_text())
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == class_name(resource["name"])
    (selector,) = request["exactly"]["selectors"]
    assert f'device.attributes["{configuration.dra.name}"].' in selector["cel"]["expression"]
    (claim,) = pod["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {"claims": [{"name": claim["name"]}]}
