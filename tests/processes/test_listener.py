"""Sockets: small pieces of a stream leave at once, and no request meets a connection that is being closed."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing
from http.client import HTTPConnection

import httpx2
import pytest
from running_processes import House

from openclaw_rl import connections
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


def test_a_connection_that_rested_longer_than_clients_keep_theirs_still_answers(house: House) -> None:
    house.start("serve")
    house.wait_until_ready()
    with closing(HTTPConnection("127.0.0.1", house.port)) as connection:
        ours = []
        for rest in (0.0, 6.0):
            time.sleep(rest)
            connection.request("GET", "/v1/models")
            answer = connection.getresponse()
            answer.read()
            ours.append((answer.status, connection.sock.getsockname()))
    assert ours == [(200, ours[0][1])] * 2


def test_our_clients_close_a_resting_connection_before_a_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MADE_SECONDS", 0.2)
    accepted = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        while await reader.readline():
            while await reader.readline() != b"\r\n":
                pass
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, httpx2.AsyncClient(limits=connections.limits()) as client:
            for rest in (0.0, 0.0, 0.5):
                await asyncio.sleep(rest)
                assert (await client.get(url)).status_code == 200

    asyncio.run(ask())
    assert len(accepted) == 2
