"""Channels to unix sockets."""

from pathlib import Path

import pytest

from node_device_plugin.support.channels import grpc, unix_channel


async def test_a_channel_does_not_read_the_environments_proxy(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """gRPC never uses one for a unix socket. It still complains on stderr about one that it cannot use."""
    monkeypatch.setenv("grpc_proxy", "https://proxy.example.com:3128")
    async with unix_channel(str(short_path / "x.sock")) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary("/a/b")(b"")
    assert capfd.readouterr().err == ""
