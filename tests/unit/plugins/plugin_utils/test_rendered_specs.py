"""Templates of CDI specs: what Ansible renders, and what it costs."""

from __future__ import annotations

import json
import types

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, spec_templates

SPEC = {
    "cdiVersion": "0.6.0",
    "kind": "example.com/fpga",
    "devices": [{"name": "0", "containerEdits": {"env": ["A=C:\\x", 'B=it\'s "q"']}}],
}


@pytest.fixture
def render(tmp_path, monkeypatch):
    """Renders a template: render(bytes, variable=value)."""
    # The full name needs the loader of collections, which only a run of Ansible has.
    by_name = types.SimpleNamespace(get=lambda name, **given: lookup_loader.get(name.rpartition(".")[2], **given))
    monkeypatch.setattr(spec_templates, "lookup_loader", by_name)
    (tmp_path / "templates").mkdir()

    def run(template, **variables):
        (tmp_path / "templates" / "a.j2").write_bytes(template)
        variables["inventory_dir"] = str(tmp_path)
        loader = DataLoader()
        action = types.SimpleNamespace(_loader=loader, _templar=Templar(loader, variables))
        return spec_templates.renderer(action, variables)("a.j2")

    return run


def specs(templates, text=""):
    return spec_templates.specs(templates, lambda _source: text, declaration.failed_expression, ())


@pytest.mark.parametrize("template", [b"{{ spec }}", b"{{ spec | to_json }}"])
def test_a_template_of_one_expression_gives_its_value(render, template):
    (found,) = specs([{"src": "a.j2"}], render(template, spec=SPEC))[0].values()
    assert json.loads(json.dumps(found)) == SPEC


@pytest.mark.parametrize(
    "template", [b"{{ none }}", b"---\n# {{ ansible_managed }}\n{% if false %}kind: x{% endif %}\n"]
)
def test_a_template_without_content_gives_no_spec(render, template):
    assert specs([{"src": "a.j2"}], render(template)) == ({}, [])


def test_the_variables_of_a_large_fleet_are_not_copied(render):
    class Groups(dict):
        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    assert render(b"# {{ ansible_managed }}{{ 1 + 1 }}", groups=Groups()).endswith("2")


@pytest.mark.parametrize("src", [None, 5])
def test_a_source_is_text(src):
    ((line,)) = specs([{"src": src}])[1]
    assert line.startswith("cdi_specs_templates: must be a list of mappings with the key src")


def test_a_template_is_utf_8(render):
    ((line,)) = specs([{"src": "a.j2"}], render(b"kind: \xff"))[1]
    assert line.startswith("cdi_specs_templates[0] (a.j2): the file: ")
