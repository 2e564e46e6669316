"""The record of prepared claims, if the plugin is killed while it writes or removes a claim."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any, Callable

import pytest

from node_device_plugin.declaration import Configuration, parse_configuration
from node_device_plugin.kubelet import dra
from node_device_plugin.kubelet.dra.claims import ClaimId, Held, PreparedClaim, PreparedDevice, Refused
from node_device_plugin.kubelet.dra.records import Records

DRIVER = "dra.example.com"
NAMES = ("example.com/camera=a", "nodedevices.kubernetes/claim=u1-cam")
DEVICE = PreparedDevice("cam", "w1/camera.example.com", "a", "example.com/camera", "a", NAMES, ("/dev/a",), False)
CLAIM = PreparedClaim(
    ClaimId("u1", "default", "mine"), DRIVER, (DEVICE,), {"cam": {"CAMERA_0": "/dev/a", "TEXT": "ü=\n"}}
)
OTHER = PreparedClaim(ClaimId("u2", "default", "other"), DRIVER, (DEVICE._replace(device_id="b", is_admin=True),), {})


def files(folder: Path) -> dict[str, str]:
    """The text of each file below a directory."""
    found = (Path(where, name) for where, _, names in os.walk(folder) for name in names)
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def killed(work: Callable[[], None], steps: int) -> bool:
    """Run work in a process that ends like a killed one before its next change of a directory after ``steps`` changes.

    Returns whether it was killed.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            left = [steps]

            def counted(change: Callable[..., Any]) -> Callable[..., Any]:
                def run(*arguments: Any, **keywords: Any) -> Any:
                    if not left[0]:
                        os._exit(9)
                    left[0] -= 1
                    return change(*arguments, **keywords)

                return run

            for name in ("replace", "unlink", "rmdir", "mkdir", "fchmod"):
                setattr(os, name, counted(getattr(os, name)))
            work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def test_a_claim_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = Records()
    assert records.read(str(tmp_path)) == {}
    for each in (CLAIM, OTHER):
        records.write(str(tmp_path), each)
    assert records.read(str(tmp_path)) == Records().read(str(tmp_path)) == {"u1": CLAIM, "u2": OTHER}
    # Another instance of the plugin may write or release a claim.
    Records().write(str(tmp_path), CLAIM._replace(devices=OTHER.devices))
    Records().remove(str(tmp_path), "u2")
    assert records.read(str(tmp_path)) == {"u1": CLAIM._replace(devices=OTHER.devices)}
    assert oct((tmp_path / "node-device-plugin-claims").stat().st_mode)[-3:] == "700"


@pytest.mark.parametrize("has_other", [True, False])
def test_whoever_is_killed_while_preparing_repeats_it_or_takes_it_back(tmp_path: Path, has_other: bool) -> None:
    whole = tmp_path / "whole"
    if has_other:
        Records().write(str(whole), OTHER)
    shutil.copytree(whole, tmp_path / "before") if has_other else (tmp_path / "before").mkdir()
    Records().write(str(whole), CLAIM)
    steps, is_killed = 0, True
    while is_killed:
        folder = tmp_path / f"cdi{steps}"
        shutil.copytree(tmp_path / "before", folder)
        is_killed = killed(functools.partial(Records().write, str(folder), CLAIM), steps)
        prepared = Records().read(str(folder))
        assert "u1" not in prepared or prepared["u1"] == CLAIM
        # What a record names is there.
        assert "u1" not in prepared or "node-device-plugin-claim_u1.json" in files(folder)
        again = tmp_path / f"again{steps}"
        shutil.copytree(folder, again)
        Records().write(str(again), CLAIM)
        assert {name: text for name, text in files(again).items() if not Path(name).name.startswith(".")} == files(
            whole
        )
        for each in (folder, again):
            Records().remove(str(each), "u1")
            visible = {name for name in files(each) if not Path(name).name.startswith(".")}
            assert visible == files(tmp_path / "before").keys()
            if not has_other:
                assert os.listdir(each) == []
        steps += 1
    assert steps > 3


def test_whoever_is_killed_while_releasing_repeats_it_or_prepares_again(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    Records().write(str(whole), CLAIM)
    steps, is_killed = 0, True
    while is_killed:
        folder = tmp_path / f"cdi{steps}"
        shutil.copytree(whole, folder)
        is_killed = killed(functools.partial(Records().remove, str(folder), "u1"), steps)
        again = tmp_path / f"again{steps}"
        shutil.copytree(folder, again)
        prepared = Records().read(str(again)).get("u1", CLAIM)
        assert prepared == CLAIM
        Records().write(str(again), prepared)
        assert files(again) == files(whole)
        Records().remove(str(folder), "u1")
        assert os.listdir(folder) == []
        steps += 1
    assert steps == 5


def test_a_release_and_a_preparation_do_not_meet(tmp_path: Path) -> None:
    """The release of the last claim removes the directory, in which another claim is being recorded."""
    errors = []

    def work(claim: PreparedClaim) -> None:
        # Another instance has records of its own.
        records = Records()
        try:
            for _ in range(300):
                records.write(str(tmp_path), claim)
                assert claim.id.uid in records.read(str(tmp_path))
                records.remove(str(tmp_path), claim.id.uid)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(each,)) for each in (CLAIM, OTHER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert os.listdir(tmp_path) == []


def test_no_other_user_can_hold_the_lock(tmp_path: Path) -> None:
    """Every user may open the directory of CDI specs, and whoever may open a directory may lock it."""
    records, is_done = Records(), threading.Event()

    def work() -> None:
        records.write(str(tmp_path), CLAIM)
        records.write(str(tmp_path), OTHER)
        records.remove(str(tmp_path), "u1")
        is_done.set()

    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        # The thread must not keep a failed test from its end.
        threading.Thread(target=work, daemon=True).start()
        assert is_done.wait(10)
    finally:
        os.close(descriptor)
    assert records.read(str(tmp_path)) == {"u2": OTHER}


def configured(directory: Path, driver: str = DRIVER) -> Configuration:
    return parse_configuration({"dynamic_cdi_dir": str(directory), "dra": {"driver": driver}, "resources": []})


def test_only_records_count(tmp_path: Path) -> None:
    parent = tmp_path / dra.RECORDS
    parent.mkdir()
    for name in ("README", ".u3.json", "u3.json~", "-.json", "u 3.json"):
        (parent / name).write_text("[")
    assert Records().read(str(tmp_path)) == {}
    assert dra.recorded_drivers(str(tmp_path)) == set()
    assert not dra.is_needed(configured(tmp_path))
    Records().write(str(tmp_path), CLAIM)
    assert Records().read(str(tmp_path)) == {"u1": CLAIM}
    assert dra.is_needed(configured(tmp_path))
    Records().remove(str(tmp_path), "u1")
    assert not dra.is_needed(configured(tmp_path))


def test_a_driver_and_a_directory_stay_while_claims_are_prepared(tmp_path: Path) -> None:
    here, new = configured(tmp_path), configured(tmp_path, "new.example.com")
    moved = configured(tmp_path / "other")
    for each in (new, moved):
        assert dra.change_problems(here, each) == []
    Records().write(str(tmp_path), CLAIM)
    assert json.loads((tmp_path / dra.RECORDS / "u1.json").read_text())["driver"] == DRIVER
    assert dra.recorded_drivers(str(tmp_path)) == {DRIVER}
    first = "end all pods with claims on this node first"
    assert dra.change_problems(here, here) == []
    assert dra.change_problems(here, new) == [("dra.driver", f"claims are prepared by the driver {DRIVER}: {first}")]
    # Back to the driver that can release them.
    assert dra.change_problems(new, here) == []
    where = "dynamic_cdi_dir", f"claims are prepared, with records in {tmp_path}: {first}"
    assert dra.change_problems(here, moved) == [where]
    (tmp_path / dra.RECORDS / "u1.json").write_text("[")
    assert dra.recorded_drivers(str(tmp_path)) == {dra.UNKNOWN}
    assert dra.change_problems(here, moved) == [where]


def test_a_claim_that_another_instance_has_released_meanwhile_is_not_recorded(tmp_path: Path) -> None:
    """Its commands may still have run, and the kubelet would never release the record."""
    other = CLAIM._replace(id=ClaimId("u3", "default", "second"), devices=())
    Records().begin(str(tmp_path), "u1")
    Records().write(str(tmp_path), other)
    # The last record goes, and what has begun stays so.
    Records().remove(str(tmp_path), "u3")
    Records().write(str(tmp_path), CLAIM, has_begun=True)
    assert set(Records().read(str(tmp_path))) == {"u1"}
    Records().remove(str(tmp_path), "u1")
    assert files(tmp_path) == {}
    Records().begin(str(tmp_path), "u1")
    Records().remove(str(tmp_path), "u1")
    with pytest.raises(Refused, match="claim default/mine: was released while it was prepared"):
        Records().write(str(tmp_path), CLAIM, has_begun=True)
    assert Records().read(str(tmp_path)) == {}


def test_a_device_that_another_instance_has_recorded_meanwhile_is_not_given_again(tmp_path: Path) -> None:
    """Overlapping pods each plan for themselves."""
    Records().write(str(tmp_path), CLAIM)
    before = files(tmp_path)
    second = CLAIM._replace(id=ClaimId("u3", "default", "second"))
    with pytest.raises(Held, match=r"camera=a: is still prepared for claim default/mine"):
        Records().write(str(tmp_path), second)
    assert files(tmp_path) == before
    # An administrator's claim may look at the device, and the claim itself may be written again.
    Records().write(str(tmp_path), second._replace(devices=(DEVICE._replace(is_admin=True),)))
    Records().write(str(tmp_path), CLAIM)
    assert set(Records().read(str(tmp_path))) == {"u1", "u3"}
