"""Every task of the repository gives our modules only options that they have: most scenarios run only in test-all."""

from __future__ import annotations

import functools
import pathlib

import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.doc_fragments import shared

ROOT = pathlib.Path(__file__).parents[3]
PREFIX = "nodedevices.kubernetes."
FILES = sorted(
    path
    for top in ("roles", "playbooks", "lab", "molecule", "examples", "bench")
    for path in (ROOT / top).rglob("*.yml")
    if "group_vars" not in path.parts and "host_vars" not in path.parts
)


class _Loader(yaml.SafeLoader):
    """Takes tags such as !unsafe as plain values."""


_Loader.add_multi_constructor("!", lambda _loader, _tag, _node: None)


@functools.cache
def options_of(module):
    """The documented options of a module; None if it is not one of ours."""
    path = ROOT / "plugins" / "modules" / f"{module}.py"
    if not path.is_file():
        return None
    told = yaml.safe_load(path.read_text().partition('DOCUMENTATION = r"""')[2].partition('"""')[0])
    found = set(told.get("options") or {})
    fragments = told.get("extends_documentation_fragment", [])
    for fragment in [fragments] if isinstance(fragments, str) else fragments:
        text = getattr(shared.ModuleDocFragment, fragment.rpartition(".")[2].upper())
        found |= set(yaml.safe_load(text)["options"])
    return found


def tasks(data):
    """Each mapping of a file, at any depth."""
    if isinstance(data, dict):
        yield data
        data = list(data.values())
    for each in data if isinstance(data, list) else ():
        yield from tasks(each)


def wrong(data):
    for task in tasks(data):
        for name, given in task.items():
            module = name.removeprefix(PREFIX) if isinstance(name, str) and name.startswith(PREFIX) else ""
            known = options_of(module) if module and isinstance(given, dict) else None
            yield from (f"{name}: {option}" for option in given if option not in known) if known is not None else ()


def data_of(path):
    return list(yaml.load_all(path.read_text(), _Loader))


def test_each_option_of_a_task_is_one_of_its_module():
    found = {str(path.relative_to(ROOT)): list(wrong(data_of(path))) for path in FILES}
    assert len(found) > 200
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(("option", "said"), [("node", ["nodedevices.kubernetes.cdi_runtime: node"]), ("command", [])])
def test_an_option_that_is_gone_is_found(option, said):
    assert list(wrong([{"block": [{"name": "x", "nodedevices.kubernetes.cdi_runtime": {option: 1}}]}])) == said
