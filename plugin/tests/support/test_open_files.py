"""The limit of open files: as high as it may be, but no higher than is useful."""

from __future__ import annotations

import resource

import pytest

from node_device_plugin.cli import run as open_files

ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "limit"),
    [
        (1024, 4096, 4096),
        (1024, 65536, 65536),
        (1024, 65537, 65536),
        (1024, 1 << 30, 65536),
        (1024, ENDLESS, 65536),
        # It is never lowered.
        (4096, 4096, 4096),
        (70000, 1 << 20, 70000),
        (ENDLESS, ENDLESS, ENDLESS),
    ],
)
def test_the_soft_limit_becomes_the_hard_one_at_most_65536(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, limit: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, given: limits.append(given))
    assert open_files.raise_limit() == limit
    assert limits[-1] == (limit, hard)
    assert len(limits) == (1 if limit == soft else 2)


@pytest.mark.parametrize("error", [OSError("not permitted"), ValueError("not allowed to raise maximum limit")])
def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(_what: int, _limits: tuple[int, int]) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda _what: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert open_files.raise_limit() == 1024
