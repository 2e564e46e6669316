"""What a release takes from a bundle, from the changelog and from its tag."""

import io
import tarfile

import pytest

CHANGELOG = """# Changelog

## 0.2.0 (2026-12-01)

- New.

## 0.1.0 (not released)

Begin.

- **A thing**
"""


def test_the_notes_are_the_versions_part_of_the_changelog(program):
    assert program.notes(CHANGELOG, "0.2.0") == ("2026-12-01", "- New.\n")
    assert program.notes(CHANGELOG, "0.1.0") == ("not released", "Begin.\n\n- **A thing**\n")
    with pytest.raises(program.ReleaseError, match=r"no heading `## 0\.10 "):
        program.notes(CHANGELOG, "0.10")


@pytest.mark.parametrize(
    ("tag", "released", "changes", "says"),
    [
        ("0.1.0", "2026-12-01", "", "the tag is 0.1.0, but this checkout has version 0.1.0: use the tag v0.1.0"),
        ("v0.1.1", "2026-12-01", "", "the tag is v0.1.1"),
        ("v0.1.0", "not released", "", "write the date into its heading"),
        ("v0.1.0", "2026-12-01", " M Makefile\n?? x\n", "differs from its commit: M Makefile ?? x"),
    ],
)
def test_a_tag_is_refused_for_another_checkout_than_its_own(program, tag, released, changes, says):
    with pytest.raises(program.ReleaseError) as error:
        program.check_tag(tag, "0.1.0", released, changes)
    assert says in str(error.value)


def test_a_tag_of_its_own_commit_is_accepted(program):
    program.check_tag("v0.1.0", "0.1.0", "2026-12-01", "")


def test_the_date_is_the_commits_unless_it_is_given(program, monkeypatch):
    monkeypatch.setattr(program, "git", lambda *arguments: {("log", "-1", "--format=%ct"): "86400"}[arguments])
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert program.date().isoformat() == "1970-01-02T00:00:00+00:00"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    assert program.date().isoformat() == "1970-01-01T00:00:01+00:00"


def test_a_release_has_the_bundles_own_files(program, tmp_path):
    files = {
        "nodedevices-kubernetes-1.2.3.tar.gz": "collection",
        "wheels/node_device_plugin-1.2.3-py3-none-any.whl": "wheel",
        "wheels/grpcio-1-py3-none-any.whl": "of others",
        "images/node-device-plugin-1.2.3-arm64.tar": "image",
        "install": "program",
    }
    with tarfile.open(tmp_path / "node-devices-1.2.3.tar", "w") as bundle:
        for name, text in files.items():
            member = tarfile.TarInfo(f"node-devices-1.2.3/{name}")
            member.size = len(text)
            bundle.addfile(member, io.BytesIO(text.encode()))
    output = tmp_path / "out"
    output.mkdir()
    program.unpack(tmp_path / "node-devices-1.2.3.tar", output)
    assert {path.name: path.read_text() for path in output.iterdir()} == {
        "nodedevices-kubernetes-1.2.3.tar.gz": "collection",
        "node_device_plugin-1.2.3-py3-none-any.whl": "wheel",
        "node-device-plugin-1.2.3-arm64.tar": "image",
    }
