"""Every command in the pages names what there is, and is run by CI or says what it needs.

A block of shell needs a mark where CI does not run it: an HTML comment right before it, `<!-- needs: a cluster -->`.
The mark excuses a block from being run, and from nothing else. Blocks of our own command without one are run here.
"""

from __future__ import annotations

import pathlib

import command_lines
import pytest
import the_project as project
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration
from command_lines import NEEDS, commands
from documented_blocks import PAGES, Block, blocks, spans, text_of

from node_device_plugin.cli import main as command_line
from node_device_plugin.devices.discovery import METHODS

#: `sh` is looked into here, `python` and `diff` in test_extending; what it prints stands in a block of no language.
LANGUAGES = {"sh", "yaml", "json", "python", "diff", ""}
#: What the commands of pages are run with, beside the blocks of the page that have a file's name.
SAMPLES = pathlib.Path(__file__).parent / "samples"


def complaints(block: Block) -> list[str]:
    """What is wrong with a block, a sentence each."""
    if block.language not in LANGUAGES:
        return [f"a block of {block.language}: use one of {', '.join(sorted(LANGUAGES - {''}))}, or none"]
    if block.language != "sh":
        return []
    if block.needs is not None and block.needs not in NEEDS:
        return [f"needs {block.needs}: that is none of {', '.join(NEEDS)}"]
    found = list(commands(block.text))
    said = [f"{' '.join(each)}: {problem}" for each in found for problem in command_lines.problems(each)]
    not_run = [each for each in found if not command_lines.is_run_by_ci(each)]
    if block.needs is None:
        said += [f"{' '.join(each)}: CI does not run it; say before the block what it needs" for each in not_run]
    elif not not_run and block.needs not in ("a provisioned node", "the lab"):
        said.append(f"CI runs all of it: it needs no {block.needs}")
    return said


@pytest.mark.parametrize("page", PAGES)
def test_every_command_block_is_run_or_says_what_it_needs(page):
    said = [f"{page}:{block.line}: {each}" for block in blocks(text_of(page)) for each in complaints(block)]
    assert said == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_between_backticks_are_there(page):
    said = []
    for span in spans(text_of(page)):
        program = span.split()[0] if span.split() else ""
        if " " in span and program in ("make", "node-device-plugin", "ansible-playbook") and "…" not in span:
            said += [f"`{span}`: {problem}" for each in commands(span) for problem in command_lines.problems(each)]
        elif span.startswith(("playbooks/", "lab/playbooks/")) and span.endswith(".yml") and not project.is_there(span):
            said.append(f"there is no {span}")
    assert said == []


RUN = [(page, block) for page in PAGES for block in blocks(text_of(page)) if block.language == "sh" and not block.needs]


@pytest.mark.parametrize(("page", "block"), RUN, ids=[f"{page}:{block.line}" for page, block in RUN])
def test_our_command_does_what_the_page_has_it_do(page, block, tmp_path, monkeypatch, capsys):
    for sample in SAMPLES.rglob("*.yaml"):
        place = tmp_path / sample.relative_to(SAMPLES)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(sample.read_text())
    for each in blocks(text_of(page)):
        if each.file:
            (tmp_path / each.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / each.file).write_text(each.text)
    monkeypatch.chdir(tmp_path)
    for command in commands(block.text):
        if command[0] == "node-device-plugin":
            assert command_line.main(command[1:]) == 0, capsys.readouterr().err
            assert capsys.readouterr().out


def test_there_are_such_blocks():
    assert sum("node-device-plugin" in block.text for _, block in RUN) >= 2


@pytest.mark.parametrize("page", PAGES)
def test_variables_in_yaml_are_there(page):
    said = []
    for block in blocks(text_of(page)):
        if block.language == "yaml":
            for document in yaml.safe_load_all(block.text):
                said += [f"{page}:{block.line}: {name}" for name in keys(document) if not project.is_variable(name)]
    assert said == []


DECLARED = [
    (page, block)
    for page in PAGES
    for block in blocks(text_of(page))
    if block.language == "yaml" and declaration.PREFIX in block.text
]


@pytest.mark.parametrize(("page", "block"), DECLARED, ids=[f"{page}:{block.line}" for page, block in DECLARED])
def test_declarations_are_valid(page, block):
    variables = yaml.safe_load(block.text)
    # An expression over facts: 1 is what it might give.
    for resources in (value for name, value in variables.items() if name.startswith(declaration.PREFIX)):
        for resource in resources:
            if "{{" in str(resource.get("capacity")):
                resource["capacity"] = 1
    settings = variables.get(declaration.SETTINGS)
    read = declaration.read(variables, lambda value: value, settings, render=lambda _template: "")
    assert read.configuration.resources or read.capacities


@pytest.mark.parametrize(("page", "block"), DECLARED, ids=[f"{page}:{block.line}" for page, block in DECLARED])
def test_our_command_accepts_the_declaration(page, block, tmp_path, capsys):
    """`validate` evaluates no expression, so a declaration with one is read by Ansible's side alone (above)."""
    file = tmp_path / "devices.yml"
    file.write_text(block.text)
    code = command_line.main(["validate", str(file)])
    complaint = capsys.readouterr().err
    if "{{" in block.text:
        assert "is an expression, which only Ansible evaluates" in complaint
    else:
        assert (code, complaint) == (0, "")


def test_there_are_declarations():
    assert len(DECLARED) >= 5


def test_the_declaration_page_has_an_example_of_every_selector():
    shown = set()
    for page, block in DECLARED:
        for resource in (each for value in yaml.safe_load(block.text).values() for each in value):
            if page == "docs/declaration.md":
                shown |= {"devices", "capacity"} & resource.keys() | resource.get("discover", {}).keys()
    assert shown >= {"devices", "capacity", *(method.key for method in METHODS)}


def keys(data):
    """The names of variables: keys of an inventory's file, of `vars`, and of roles in a play."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield name
            if name in ("vars", "roles", "hosts", "children") or name.endswith("_nodes"):
                yield from keys(value)
    elif isinstance(data, list):
        for each in data:
            yield from keys(each)


BAD = {
    "make labb": "the Makefile has no target labb",
    "make image IMAGE_BAS=debian": "the Makefile has no variable IMAGE_BAS",
    "NODE_DEVICES_MOTOR=podman make lab": "nothing reads the variable NODE_DEVICES_MOTOR",
    "node-device-plugin validate --confg x.yaml": "unrecognized arguments: --confg",
    "node-device-plugin repair": "invalid choice: 'repair'",
    "ansible-playbook -i inventories/lab playbooks/repair.yml": "there is no playbooks/repair.yml",
    "ansible-playbook nodedevices.kubernetes.repair": "there is no playbook nodedevices.kubernetes.repair",
    "ansible-playbook playbooks/site.yml --dry-run": "unrecognized arguments: --dry-run",
    "ansible-playbook playbooks/site.yml -e node_devices_serials=1": "there is no variable node_devices_serials",
    "ansible-playbook playbooks/site.yml -e cdi_runtime_twice=1": "there is no variable cdi_runtime_twice",
    "ansible-playbook playbooks/site.yml --tags repair": "there is no tag repair",
    "ansible-playbook -i inventories/nowhere playbooks/site.yml": "there is no inventories/nowhere",
    ".venv/bin/ansible-repair": "there is no ansible-repair",
    "ansible-builder build --label x": "unrecognized arguments: --label x",
    "lab/roles/lab_node/files/engine exec -it lab-node1 node-device-plugin repair": "invalid choice: 'repair'",
    "cp lab/roles/lab_node/files/motor x": "there is no lab/roles/lab_node/files/motor",
    "node-devices-9.9.9/install /opt/x": "not 9.9.9",
    "node-devices-0.1.0/installer /opt/x": "a bundle has no installer",
    "$controller/bin/ansible-playbook -i inventory nodedevices.kubernetes.repair": "there is no playbook",
    "cat x | curl -T - example.com": "curl is no program that a page may call",
}


@pytest.mark.parametrize("text", BAD)
def test_a_command_that_names_what_is_not_there_is_found_whatever_it_needs(text):
    said = complaints(Block(1, "sh", f"make check\n{text}  # as said\n", "the lab", None))
    assert said
    assert all(each.startswith(text.split(" | ")[-1]) for each in said)
    assert BAD[text] in said[0]


def test_a_block_that_is_not_run_has_to_say_why():
    page = "```sh\nmake lint\nmake kind\n```\n\n<!-- needs: a container engine -->\n```sh\nmake kind\n```\n"
    first, second = blocks(page)
    assert complaints(first) == ["make kind: CI does not run it; say before the block what it needs"]
    assert complaints(second) == []


def test_a_reason_has_to_be_a_known_one():
    (said,) = complaints(Block(1, "sh", "make kind\n", "some luck", None))
    assert said.startswith("needs some luck: that is none of ")


def test_every_reason_is_one_of_some_page():
    assert {block.needs for page in PAGES for block in blocks(text_of(page))} - {None} == NEEDS.keys()


def test_a_block_that_is_run_needs_no_mark():
    assert complaints(Block(1, "sh", "make check\n", "a cluster", None)) == ["CI runs all of it: it needs no a cluster"]
    again = ".venv/bin/ansible-playbook -i inventories/lab playbooks/site.yml"
    assert complaints(Block(1, "sh", again + "  # as the README says\n", None, None)) == []
    assert complaints(Block(1, "sh", again + " --check\n", None, None)) != []


def test_a_shell_by_another_name_is_no_way_around():
    (block,) = blocks("- an item:\n\n  ```bash\n  make labb\n  ```\n")
    assert complaints(block) == ["a block of bash: use one of diff, json, python, sh, yaml, or none"]


def test_what_ci_makes_is_read_from_the_makefile():
    makefile = "a: b\n\ttrue\nb c: d # because\n\t@$(MAKE) --jobs 2 e f\nd e:\nf := g\ng: h\n"
    targets = project.targets_of(makefile)
    assert set(targets) == {"a", "b", "c", "d", "e", "g"}
    assert project.reached_from("a", targets) == {"a", "b", "d", "e"}
    assert {"test", "check", "lint", "unit", "scenario-default", "scenario-daemonset", "api-server"} <= project.in_ci()
    assert {"newcomer", "lab", "lab-down"} <= project.in_ci()
    assert not {"kind", "bench", "soak", "lock"} & project.in_ci()
