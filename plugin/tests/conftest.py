"""What tests of sockets need."""

from typing import Any

import pytest

from node_device_plugin.devices.events.inotify import Inotify
from node_device_plugin.support.channels import grpc

# Never shut down again: where the last of its objects goes with the garbage of a session that ends, the poller of
# grpc.aio waits for itself for ever (seen at the end of pytest, after every test had passed).
grpc.aio.init_grpc_aio()


@pytest.fixture(autouse=True)
def inotify_refusals(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the kernel said each time that it had no inotify instance left for a test; named if that test fails."""
    refusals: list[str] = []
    make = Inotify.__init__

    def noted(inotify: Inotify) -> None:
        try:
            make(inotify)
        except OSError as error:
            refusals.append(str(error))
            raise

    monkeypatch.setattr(Inotify, "__init__", noted)
    request.node.inotify_refusals = refusals
    return refusals


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    refusals = getattr(item, "inotify_refusals", [])
    if report.failed and refusals:
        said = "%s. Run as root: sysctl --write fs.inotify.max_user_instances=1024" % refusals[0]
        report.sections.append(("No inotify instance was left for this test", said))
    return report
