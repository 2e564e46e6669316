"""What fuzzing found (tests/fuzz/run) is read again: none of it fails, and each target has some."""

from __future__ import annotations

import pathlib

import pytest
from targets import TARGETS

HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_read(target):
    inputs = sorted((HERE / "corpus" / target).iterdir())
    assert inputs
    for path in inputs:
        try:
            TARGETS[target](path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path} failed") from error


def test_there_is_no_corpus_of_nothing():
    assert {path.name for path in (HERE / "corpus").iterdir()} == set(TARGETS)
