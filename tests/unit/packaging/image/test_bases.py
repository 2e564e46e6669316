"""Which base is taken, and the message where it cannot be pulled; the engine is a program of the test's."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import bases
import debian_base
import engine_calls
import image_building
import pytest
from engine_calls import MACHINES, native
from image_building import BuildError, Progress

PROGRAM = engine_calls.CHECKOUT / "packaging/image/build"
PINNED = f"registry.example/python@sha256:{'a' * 64}"
OTHER = next(each for each in sorted(MACHINES) if each != native())
NO_REGISTRY = 'echo "Trying to pull..." >&2; echo "Error: pinging container registry: no such host" >&2; exit 125'
FACTS = {"libc": "", "python": {"version": [3, 13, 1]}, "executable": "/p", "stdlib": "/l"}


class Engine:
    """A shell script in the engine's place. cases: a command, and what the script does then."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "engine"
        self._calls = folder / "calls"

    def does(self, **cases: str) -> None:
        lines = "\n".join(f"{command}) {body} ;;" for command, body in cases.items())
        self.program.write_text(f'#!/bin/sh\necho "$@" >>{self._calls}\ncase $1 in\n{lines}\nesac\n')
        self.program.chmod(0o755)

    def calls(self, command: str = "") -> list[str]:
        """What it was asked, all or of one command."""
        return [line for line in self._calls.read_text().splitlines() if line.startswith(command)]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """The engine of what is called here."""
    engine = Engine(tmp_path)
    for module in (engine_calls, image_building):
        monkeypatch.setattr(module, "ENGINE", str(engine.program))
    return engine


def choose(wanted: str, architecture: str = native()) -> bases.Base:
    return bases.choose(wanted, architecture, Progress("test"))


def inspected(**image: str) -> str:
    return f"echo '{json.dumps([image])}'"


def build(engine: Engine, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, "--output", engine.program.parent, *arguments],
        env=os.environ | {"NODE_DEVICES_ENGINE": str(engine.program), "XDG_CACHE_HOME": str(engine.program.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("wanted", ["", "debian"])
def test_the_base_is_debians_and_no_registry_is_asked(engine, wanted):
    engine.does(image="exit 0")
    assert choose(wanted, OTHER) == bases.Base(*(debian_base.name(each) for each in (OTHER, OTHER, native())))
    assert engine.calls("pull") == []


@pytest.mark.parametrize("wanted", ["python:3.13", "python@sha256:abc", "localhost/mine", "@sha256:" + "a" * 64])
def test_a_base_without_a_digest_is_refused_before_a_registry_is_asked(engine, wanted):
    engine.does(image=inspected(Id="sha256:abc", Architecture=native()))
    with pytest.raises(BuildError) as refused:
        choose(wanted)
    assert str(refused.value) == f"IMAGE_BASE={wanted}: the image has no digest: use NAME@sha256:DIGEST, or debian"


def test_debians_base_checks_how_old_the_archives_index_is():
    assert not any("Valid-Until" in option for option in debian_base._OPTIONS)


def test_a_base_that_was_asked_for_is_not_replaced(engine):
    engine.does(pull=NO_REGISTRY, image="echo 'Error: no such image' >&2; exit 1")
    with pytest.raises(BuildError) as refused:
        choose(PINNED)
    assert str(refused.value) == (
        f"the base {PINNED} (IMAGE_BASE) cannot be pulled for linux/{native()}: "
        "pull: pinging container registry: no such host"
    )
    with pytest.raises(BuildError, match=f"for linux/{OTHER} and, to compile bytecode, linux/{native()}: pull: "):
        choose(PINNED, OTHER)


def test_for_another_architecture_its_own_base_is_pulled_and_this_machines_runs(engine):
    """The name is pulled for this machine last: it goes on to stand for that."""
    other, own = inspected(Id="other", Architecture=OTHER), inspected(Id="own", Architecture=native())
    last = f"$(grep ^pull {engine.program.parent}/calls | tail -n 1)"
    engine.does(
        image=f'case "{last}" in *linux/{OTHER}*) {other} ;; *) {own} ;; esac', run=f"echo '{json.dumps(FACTS)}'"
    )
    base = choose(PINNED, OTHER)
    assert base == bases.Base(PINNED, "other", "own")
    assert engine.calls("pull") == [f"pull --quiet --platform linux/{each} {PINNED}" for each in (OTHER, native())]
    assert bases.look(base) == FACTS
    (asked,) = engine.calls("run")
    assert " own " in asked


def test_a_machine_that_nothing_can_be_compiled_on_is_refused(engine, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(BuildError, match="this machine is riscv64, which cannot build the image: use amd64 or arm64"):
        choose("", "amd64")


def test_a_base_without_python_says_so(engine):
    engine.does(run="echo 'Error: no python3 in $PATH' >&2; exit 127")
    with pytest.raises(BuildError) as refused:
        bases.look(bases.Base("localhost/mine", "a", "b"))
    assert str(refused.value) == "the base localhost/mine has no working python3: run: no python3 in $PATH"


def test_a_base_without_glibc_is_refused(engine):
    engine.does(image=inspected(Id="abc", RootFS={"Layers": []}), run=f"echo '{json.dumps(FACTS)}'")
    done = build(engine, "--base", PINNED)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"image: the base {PINNED}: ")
    assert "wheels need glibc" in done.stderr


def test_an_engine_that_does_not_answer_is_said_before_anything_is_made(engine):
    engine.does(ps="echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    done = build(engine)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "image: ps: Cannot connect to the Docker daemon"
    assert engine.calls() == ["ps --quiet"]


def test_an_archive_that_has_no_place_is_said_before_anything_is_made(engine):
    engine.does()
    done = build(engine, "--output", engine.program / "folder")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("image: ")
    assert str(engine.program) in done.stderr.splitlines()[-1]
    assert engine.calls() == ["ps --quiet"]


def test_debians_files_carry_nothing_of_the_machine_and_the_hour(tmp_path):
    def made(hour: int, host: str) -> bytes:
        raw, layer = io.BytesIO(), io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            for path in ("./dev/", "./dev/null", "./etc/hostname", "./etc/apt/sources.list", "./usr/bin/python3.13"):
                member = tarfile.TarInfo(path.rstrip("/"))
                member.type = tarfile.DIRTYPE if path.endswith("/") else tarfile.REGTYPE
                member.size, member.mtime, member.uname = 0 if path.endswith("/") else len(host), hour, host
                tar.addfile(member, io.BytesIO(host.encode()) if member.isreg() else None)
            for path in ("./var/run", "./var/lib/dpkg/status.d", "./var/lib/dpkg/info"):
                member = tarfile.TarInfo(path)
                member.type, member.mtime = tarfile.DIRTYPE, hour
                tar.addfile(member)
        raw.seek(0)
        debian_base.tidy(raw, layer)
        layer.seek(0)
        with tarfile.open(fileobj=layer) as tar:
            names = tar.getnames()
            assert tar.getmember("./var/run").linkname == "/run"
            assert b"root:x:0:0" in tar.extractfile("./etc/passwd").read()
        assert names[:-2] == ["./dev", "./usr/bin/python3.13", "./var/run", "./var/lib/dpkg/status.d"]
        return layer.getvalue()

    assert made(1, "host") == made(2_000_000_000, "host")
