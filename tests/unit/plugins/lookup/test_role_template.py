"""Templates of roles: with the given variables alone, and each text rendered once in a run."""

from __future__ import annotations

import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.lookup import role_template

TIMER = "extended_resources/node-device-capacities.timer.j2"
UNIT = "device_plugin/node-device-plugin.service.j2"


@pytest.fixture
def rendered(monkeypatch):
    """The end of each template's path with its variables, as Ansible's own lookup gets them."""
    found = []

    def run(paths, variables):
        (path,) = paths
        found.append((path.partition("/roles/")[2], variables))
        return [f"text {len(found)}"]

    monkeypatch.setattr(role_template.lookup_loader, "get", lambda *_names, **_more: types.SimpleNamespace(run=run))
    return found


def look_up(*terms, **given):
    lookup = role_template.LookupModule(loader=None, templar=None)
    return lookup.run(list(terms), variables={"period": 1, "another": 2}, **given)


def test_a_template_gets_the_given_variables_and_no_others(rendered):
    assert look_up(TIMER, UNIT, period=30) == ["text 1", "text 2"]
    assert rendered == [
        ("extended_resources/templates/node-device-capacities.timer.j2", {"period": 30}),
        ("device_plugin/templates/node-device-plugin.service.j2", {"period": 30}),
    ]


def test_other_values_and_other_templates_have_other_texts(rendered):
    assert [look_up(TIMER, period=30) for _host in range(3)] == [["text 1"]] * 3
    assert look_up(TIMER, period=31) == ["text 2"]
    assert look_up(UNIT, period=31) == ["text 3"]
    # Their order is no difference.
    assert look_up(UNIT, one=1, other=[2]) == look_up(UNIT, other=[2], one=1) == ["text 4"]
    assert len(rendered) == 4
