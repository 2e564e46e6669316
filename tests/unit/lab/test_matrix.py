"""tests/matrix/run: which cells there are, what is run again, and what is written down."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import pathlib
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def matrix(monkeypatch, tmp_path):
    loader = importlib.machinery.SourceFileLoader("matrix_run", str(CHECKOUT / "tests/matrix/run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    monkeypatch.setitem(sys.modules, loader.name, module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    loader.exec_module(module)
    for name, path in (("CHECKOUT", ""), ("RESULTS", "bench/matrix.json"), ("LOGS", "logs"), ("PUBLISHED", "m.json")):
        monkeypatch.setattr(module, name, tmp_path / path)
    monkeypatch.setattr(module, "content", lambda: "as it is")
    return module


@pytest.fixture
def newest(matrix):
    """A pattern: the newest kubelet from the newest controller."""
    return f"{matrix.cells()[0].versions['kubelet']}/*/{list(matrix.CONTROLLERS)[-1]}"


@pytest.fixture
def run(matrix, monkeypatch):
    """run(*arguments, failing=NAMES): the exit code, and the cells that were really run."""

    def call(*arguments, failing=()):
        ran = []

        def fake(cell):
            ran.append(cell.name)
            if cell.name in failing:
                raise matrix.CellError("kubelet is not built")
            return {**cell.versions, "content": matrix.content(), "result": "passed", "seconds": 1}

        monkeypatch.setattr(matrix, "run", fake)
        monkeypatch.setattr(sys, "argv", ["run", *arguments])
        return matrix.main(), ran

    return call


def test_every_kubelet_meets_every_containerd_from_every_controller(matrix):
    names = [cell.name for cell in matrix.cells()]
    kubelets, containerds, controllers = ({name.split("/")[position] for name in names} for position in (0, 1, 2))
    assert len(set(names)) == len(names) == len(kubelets) * len(containerds) * len(controllers) == 40
    assert "debian" in containerds


def test_a_cell_that_has_passed_is_not_run_again(matrix, run, newest, monkeypatch, capsys):
    (failing,) = (cell.name for cell in matrix.cells() if cell.name == newest.replace("*", "debian"))
    code, ran = run(newest, failing=[failing])
    assert (code, len(ran)) == (1, 5)
    assert f"{failing}: kubelet is not built" in capsys.readouterr().out
    assert run(newest) == (0, [failing])
    assert run(newest) == (0, [])
    assert "matrix: 5 passed, 0 failed" in capsys.readouterr().out
    assert len(run("--again", newest)[1]) == 5
    monkeypatch.setattr(matrix, "content", lambda: "changed")
    assert len(run(newest)[1]) == 5


def test_a_name_of_no_cell_is_a_wrong_use(run, capsys):
    assert run("1.99/*") == (2, [])
    assert "no cell matches" in capsys.readouterr().err


def test_what_is_published_is_what_a_cell_did_and_what_others_had_done(matrix, run, newest):
    before = matrix.cells()[0]
    gone = {**before.versions, "kubelet": "1.2.3", "result": "passed"}
    matrix.PUBLISHED.write_text(json.dumps([gone, {**before.versions, "date": "2026-01-01", "result": "passed"}]))
    run(newest, failing=[newest.replace("*", "debian")])
    assert run("--publish") == (0, [])
    published = json.loads(matrix.PUBLISHED.read_text())
    assert published[0] == {**before.versions, "date": "2026-01-01", "result": "passed"}
    assert len(published) == 6
    assert {cell["result"] for cell in published} == {"passed", "kubelet is not built"}
    assert "seconds" not in published[1]
