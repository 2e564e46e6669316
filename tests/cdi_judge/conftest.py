"""The programs that read specs with the CDI reference library, before and from 1.1.1 on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from library import Library

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def newest() -> Library:
    return Library(_built("cdi-judge"), "1.1.0", former=False)


@pytest.fixture(scope="session")
def former() -> Library:
    """The library of containerd 1.7. It reads text without quotes as all do up to 1.1.0."""
    return Library(_built("cdi-judge-0.8"), "0.8.0", former=True)


@pytest.fixture(params=["newest", "former"])
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.getfixturevalue(request.param)
    return found


def _built(name: str) -> Path:
    command = "lab/programs/build"
    where = subprocess.run([CHECKOUT / command, "--where", name], stdout=subprocess.PIPE, text=True)
    if where.returncode:
        pytest.fail(f"the CDI reference library is not built: {command} {name}", pytrace=False)
    return Path(where.stdout.strip()) / "cdi-judge"
