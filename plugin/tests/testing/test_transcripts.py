"""The stand-in against what was recorded of the real kubelet, with a runtime that runs nothing.

`python -m node_device_plugin.testing.transcripts check` does the same on a node, containers included.
"""

import os

import pytest

from node_device_plugin.testing import transcripts
from node_device_plugin.testing.in_process import InProcess
from node_device_plugin.testing.scenarios import SCENARIOS

TRANSCRIPTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "transcripts")


@pytest.mark.parametrize("name", list(SCENARIOS))
async def test_stand_in_does_what_the_kubelet_did(name, short_path):
    recorded = transcripts.read(TRANSCRIPTS, name)
    assert recorded["kubelet"] == "Kubernetes v1.36.2"
    steps = await transcripts.run(name, InProcess(str(short_path)), image="none")
    assert transcripts.difference(recorded["steps"], steps) == []


def test_every_transcript_belongs_to_a_scenario():
    assert sorted(os.listdir(TRANSCRIPTS)) == sorted(name + ".json" for name in SCENARIOS)
    for name in SCENARIOS:
        command = transcripts.read(TRANSCRIPTS, name)["record"]
        assert command == "python -m node_device_plugin.testing.transcripts record --kubelet KUBELET %s" % name


def test_a_difference_is_shown_where_it_is():
    before = [{"step": "one", "allocatable": {"a": ["a0"]}}]
    after = [{"step": "one", "allocatable": {"a": []}}]
    lines = transcripts.difference(before, after)
    assert '-   "allocatable": {"a": ["a0"]}}' in lines
    assert '+   "allocatable": {"a": []}}' in lines
    assert transcripts.difference(before, before) == []


async def test_a_story_that_does_not_go_on_says_where(short_path, monkeypatch):
    async def stuck(story):
        await story.step("wait for nothing", until=lambda seen: False)

    monkeypatch.setitem(SCENARIOS, "stuck", stuck)
    monkeypatch.setattr("node_device_plugin.testing.story._PATIENCE", 0.1)
    with pytest.raises(AssertionError, match=r"wait for nothing: not seen in 0.1 s"):
        await transcripts.run("stuck", InProcess(str(short_path)), image="none")


def test_an_unknown_scenario_is_a_wrong_use(capsys):
    with pytest.raises(SystemExit) as exit_info:
        transcripts.main(["check", "nonsense"])
    assert exit_info.value.code == 2
    assert "unknown scenario nonsense" in capsys.readouterr().err
