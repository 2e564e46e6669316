"""The image, built once for all tests."""

from __future__ import annotations

import os
import shutil

import pytest
from built_image import EVIDENCE, build, engine


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    shutil.rmtree(EVIDENCE, ignore_errors=True)
    built = build(tmp_path_factory.mktemp("image"))
    yield built
    engine("image", "rm", built.name)


@pytest.fixture(scope="session")
def locked_up():
    """What a container is run with that shall have no power at all."""
    arguments = "--network none --cgroupns private --read-only --cap-drop all --security-opt no-new-privileges"
    # Without CAP_DAC_OVERRIDE root has no way into the folders of whoever runs the tests.
    return [*arguments.split(), *([] if os.getuid() == 0 else ["--user", f"{os.getuid()}:{os.getgid()}"])]


def pytest_terminal_summary(terminalreporter, exitstatus):
    if exitstatus and EVIDENCE.exists():
        terminalreporter.write_line(f"{EVIDENCE} has the logs of the containers")
