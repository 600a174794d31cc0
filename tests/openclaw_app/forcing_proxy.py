"""A proxy before our server that forces a file to be read where the user asks for it.

The embedded model is too small to decide for a tool and its arguments by itself. The proxy adds what makes
it: `tool_choice`, and a schema that leaves it this file alone. It keeps what passed, so that a test can look
at the client's headers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
from recorded import is_injected

from openclaw_rl.policy.chat_template import text_of

READING = "Please read the file "
"""A message that begins so, followed by the file's name, has its first answer forced."""


@dataclass
class Seen:
    """One request to the chat route: the client's headers, by lower-case name, and its body."""

    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Proxy:
    url: str
    seen: list[Seen] = field(default_factory=list)


def _force(body: dict[str, Any]) -> None:
    """Make the answer a call of read, if the last message asks for it and a person wrote that."""
    last = next(message for message in reversed(body["messages"]) if not is_injected(message))
    _, asks, file = text_of(last.get("content")).partition(READING)
    if not asks or last["role"] != "user":
        return
    body["tool_choice"] = {"type": "function", "function": {"name": "read"}}
    for tool in body["tools"]:
        if tool["function"]["name"] == "read":
            tool["function"]["parameters"] = {
                "type": "object",
                "properties": {"path": {"const": file}},
                "required": ["path"],
                "additionalProperties": False,
            }


@contextmanager
def forcing_proxy(server: str) -> Iterator[Proxy]:
    """Forward what comes to the proxy's URL to `server` until the block ends."""
    client = httpx2.Client(base_url=server, timeout=300)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._forward("GET", b"")

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["content-length"]))
            body = json.loads(sent)
            if self.path == "/v1/chat/completions":
                proxy.seen.append(Seen({name.lower(): value for name, value in self.headers.items()}, body))
                _force(body)
            self._forward("POST", json.dumps(body).encode())

        def _forward(self, method: str, content: bytes) -> None:
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in ("host", "content-length", "accept-encoding", "connection")
            }
            try:
                with client.stream(method, self.path, headers=headers, content=content) as response:
                    self.send_response(response.status_code)
                    for name, value in response.headers.items():
                        if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                            self.send_header(name, value)
                    self.end_headers()
                    for piece in response.iter_raw():
                        self.wfile.write(piece)
                        self.wfile.flush()
            except ConnectionError:
                pass  # the client hung up, and so did we when the block ended
            except httpx2.TransportError:
                self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
        client.close()
