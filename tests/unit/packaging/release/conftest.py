"""Makes packaging/release/build and the modules beside it importable."""

import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

RELEASE = Path(__file__).parents[4] / "packaging" / "release"
sys.path[:0] = [str(RELEASE), str(RELEASE.parent / "bundle")]


@pytest.fixture(scope="session")
def program() -> ModuleType:
    module = ModuleType("release_build")
    module.__file__ = str(RELEASE / "build")
    SourceFileLoader(module.__name__, module.__file__).exec_module(module)
    return module
