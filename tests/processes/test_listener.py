"""The server's socket: small pieces of a stream leave at once."""

from __future__ import annotations

import asyncio
import socket

import pytest

from openclaw_rl.config import Settings
from openclaw_rl.processes.listener import listening


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_no_piece_of_a_stream_waits_for_the_client_to_acknowledge_the_one_before(host: str) -> None:
    try:
        listener, _ = listening(Settings(server={"host": host, "port": 0}))
    except ValueError:
        pytest.skip(f"this machine has no {host}")
    without_delay: list[int] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected = writer.get_extra_info("socket")
        without_delay.append(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def connect() -> None:
        async with await asyncio.start_server(accept, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            await reader.read()
            writer.close()

    asyncio.run(connect())
    assert without_delay == [1]
