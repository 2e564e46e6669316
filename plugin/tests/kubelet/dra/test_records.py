"""The record of prepared claims, if the plugin is killed while it writes or removes a claim."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any, Callable

import pytest

from node_device_plugin.kubelet.dra.claims import ClaimId, PreparedClaim, PreparedDevice
from node_device_plugin.kubelet.dra.records import Records

NAMES = ("example.com/camera=a", "nodedevices.kubernetes/claim=u1-cam")
DEVICE = PreparedDevice("cam", "w1/camera.example.com", "a", "example.com/camera", "a", NAMES, ("/dev/a",), False)
CLAIM = PreparedClaim(ClaimId("u1", "default", "mine"), (DEVICE,), {"cam": {"CAMERA_0": "/dev/a", "TEXT": "ü=\n"}})
OTHER = PreparedClaim(ClaimId("u2", "default", "other"), (DEVICE._replace(device_id="b", is_admin=True),), {})


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
    assert steps == 4
