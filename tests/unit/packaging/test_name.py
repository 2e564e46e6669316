"""The directory packaging/ has the name of a Python package that Ansible and our plugins import."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def test_the_directory_does_not_hide_the_package_of_its_name():
    """Python prefers a package that it finds later to a directory without __init__.py."""
    code = "import packaging; from packaging.version import Version; print(packaging.__file__)"
    # `python -c` looks in its working directory first.
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).is_relative_to(CHECKOUT / "packaging")
    assert not list((CHECKOUT / "packaging").glob("*.py"))
