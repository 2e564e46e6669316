"""With an in-memory runtime, the stand-in must match the real kubelet's transcripts.

`python -m kubelet_stand_in.transcripts check` compares on a node, with real containers.
"""

import glob
import os

import pytest

from kubelet_stand_in import kubelet, transcripts
from kubelet_stand_in.in_process import InProcess
from kubelet_stand_in.scenarios import SCENARIOS

TRANSCRIPTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "transcripts")


@pytest.mark.parametrize("name", list(SCENARIOS))
async def test_stand_in_does_what_the_kubelet_did(name, short_path):
    recorded = transcripts.read(TRANSCRIPTS, name)
    assert transcripts.minor_of(recorded["kubelet"]) == transcripts.minor_of(kubelet.KUBERNETES_VERSION)
    steps = await transcripts.run(name, InProcess(str(short_path)), image="none")
    assert transcripts.difference(recorded["steps"], steps) == []


@pytest.mark.parametrize("name", list(SCENARIOS))
async def test_with_the_sockets_of_1_37_it_does_what_that_kubelet_did(name, short_path):
    recorded = transcripts.read(TRANSCRIPTS, name, "Kubernetes v1.37.2")
    steps = await transcripts.run(name, InProcess(str(short_path), minor=(1, 37)), image="none")
    assert transcripts.difference(recorded["steps"], steps) == []


def test_every_transcript_belongs_to_a_scenario():
    there = {os.path.relpath(path, TRANSCRIPTS) for path in glob.glob(TRANSCRIPTS + "/**/*.json", recursive=True)}
    assert {path for path in there if not os.path.dirname(path)} == {name + ".json" for name in SCENARIOS}
    for path in there:
        minor, name = os.path.dirname(path), os.path.basename(path)[: -len(".json")]
        document = transcripts.read(os.path.join(TRANSCRIPTS, minor), name)
        command = "python -m kubelet_stand_in.transcripts record --kubelet KUBELET %s" % name
        assert document["record"] == command
        # A minor version has its own file only if its behaviour differs from the common transcript.
        common = transcripts.read(TRANSCRIPTS, name)
        assert not minor or transcripts.minor_of(document["kubelet"]) == minor
        assert not minor or transcripts.difference(common["steps"], document["steps"])


def test_a_minor_has_a_transcript_of_its_own_where_it_differs(tmp_path):
    directory, one, two = str(tmp_path), [{"step": "one"}], [{"step": "two"}]

    def steps(version):
        return transcripts.read(directory, "a", version)["steps"]

    transcripts.record(directory, "a", "Kubernetes v1.36.2", one)
    transcripts.record(directory, "a", "Kubernetes v1.37.2", two)
    assert (steps(""), steps("Kubernetes v1.36.3"), steps("Kubernetes v1.37.3")) == (one, one, two)
    assert sorted(os.listdir(directory)) == ["1.37", "a.json"]
    transcripts.record(directory, "a", "Kubernetes v1.37.3", one)
    transcripts.record(directory, "a", "Kubernetes v1.36.3", two)
    assert (steps(""), steps("Kubernetes v1.37.3")) == (two, two)


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
    monkeypatch.setattr("kubelet_stand_in.story._TIMEOUT", 0.1)
    with pytest.raises(AssertionError, match=r"wait for nothing: not seen in 0.1 s"):
        await transcripts.run("stuck", InProcess(str(short_path)), image="none")


def test_an_unknown_scenario_is_a_wrong_use(capsys):
    with pytest.raises(SystemExit) as exit_info:
        transcripts.main(["check", "nonsense"])
    assert exit_info.value.code == 2
    assert "unknown scenario nonsense" in capsys.readouterr().err
