"""The chart with the real Helm of HELM_BIN_DIR."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest
from chart_objects import Helm


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    program = shutil.which("helm", path=os.environ.get("HELM_BIN_DIR") or "/nonexistent")
    if not program:
        pytest.fail("HELM_BIN_DIR has no helm. Build it, and run these tests: make chart")
    home = tmp_path_factory.mktemp("helm")
    environment = {**os.environ, **{f"HELM_{name}_HOME": str(home / name) for name in ("CACHE", "CONFIG", "DATA")}}

    def run(*arguments: str, values: Any = None) -> tuple[int, str]:
        given = []
        if values is not None:
            file = home / "values.yaml"
            # Go reads a plain 0825 as a number, and PyYAML writes this text so.
            file.write_text(json.dumps(values, ensure_ascii=False))
            given = ["--values", str(file)]
        done = subprocess.run([program, *arguments, *given], capture_output=True, text=True, env=environment)
        return done.returncode, done.stdout if not done.returncode else done.stderr + done.stdout

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # tests/run reads this line.
    program = shutil.which("helm", path=os.environ.get("HELM_BIN_DIR") or "/nonexistent")
    if program:
        version = subprocess.run([program, "version", "--template={{.Version}}"], capture_output=True, text=True)
        terminalreporter.write_line(f"judged by: helm {version.stdout}")
