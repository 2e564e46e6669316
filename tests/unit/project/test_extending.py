"""docs/extending.md: its example works in a copy of the plugin."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import the_project as project
from documented_blocks import ROOT, blocks, text_of

PAGE = text_of("docs/extending.md")
COPIED = ("plugin/", "tools/generate_reference", "pyproject.toml", "conftest.py", "tests/skips.yml")


def test_the_example_finds_its_devices(tmp_path):
    for name in project.tracked():
        if name.startswith(COPIED) and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    changes = "".join(block.text for block in blocks(PAGE) if block.language == "diff")
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=changes, text=True, check=True)
    created = dict(re.findall(r"^Create `([^`]+)`:\n\n```python\n(.*?)^```$", PAGE, re.M | re.S))
    for name, text in created.items():
        (tmp_path / name).write_text(text)
    changed = {*created, *re.findall(r"^\+\+\+ b/(\S+)$", changes, re.M)}
    tests = {name for name in changed if re.search(r"/test_\w+\.py$", name)} | {"plugin/tests/test_layers.py"}
    assert len(tests) == 4
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sorted(tests)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "plugin"), "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
