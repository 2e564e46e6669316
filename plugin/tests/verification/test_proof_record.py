"""What was proven need not be proven again, until something about it changes."""

import json
from pathlib import Path

from node_device_plugin.declaration import parse_resources
from node_device_plugin.verification.proof_record import Record, read_file

A, B = parse_resources([{"name": "a.b/c"}, {"name": "a.b/d"}])
(A_CHANGED,) = parse_resources([{"name": "a.b/c", "replicas": 2}])


def test_a_proof_holds_for_the_same_declaration_and_runtime_only(tmp_path: Path) -> None:
    record = Record({}, "1.0")
    record.note(A, "containerd 2.1", proven=True)
    record.note(B, "containerd 2.1", proven=True)
    (tmp_path / "record").write_text(json.dumps(record.proven))
    kept = read_file(str(tmp_path / "record"))
    later = Record(kept, "1.0")
    assert later.holds(A, "containerd 2.1")
    assert not later.holds(A, "containerd 2.2")
    assert not later.holds(A_CHANGED, "containerd 2.1")
    assert not Record(kept, "1.1").holds(A, "containerd 2.1")
    later.note(A, "containerd 2.1", proven=False)
    assert not later.holds(A, "containerd 2.1")
    later.keep_only([A], "containerd 2.1")
    assert later.proven == {}


def test_what_changed_and_changed_back_is_not_proven() -> None:
    record = Record({}, "1.0 service")
    record.note(A, "containerd 2.1", proven=True)
    record.note(B, "containerd 2.1", proven=True)
    switched = Record(record.proven, "1.0 daemonset image:1")
    switched.keep_only([A, B], "containerd 2.1")
    assert switched.proven == {}
    edited = Record(record.proven, "1.0 service")
    edited.keep_only([A_CHANGED, B], "containerd 2.1")
    assert set(edited.proven) == {"a.b/d"}


def test_a_record_that_cannot_be_read_proves_nothing(tmp_path: Path) -> None:
    for content in (b"", b"{", b"[]", b"7", b'{"a.b/c": 5}', b"\xff"):
        (tmp_path / "record").write_bytes(content)
        assert not Record(read_file(str(tmp_path / "record")), "1.0").holds(A, "x")
    assert read_file(str(tmp_path / "none")) == {}
    assert read_file(None) == {}
