"""Server-sent events cut out of the bytes of a stream, wherever the network split them.

Gives the data of each event; names, ids and comments are of no use here. See the WHATWG's HTML standard,
9.2.6. Knows no protocol.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8

_LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")  # what follows a last \r is not known yet


class EventReader:
    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that has not ended
        self._data: list[bytes] = []
        self._is_first = True
        self.held = 0
        """Bytes at most that wait for the end of an event."""

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that end in `chunk`."""
        self.held += len(chunk)
        if not re.search(rb"[\r\n]", chunk):
            self._rest.append(chunk)  # a long line is joined once, when it ends
            return []
        *lines, rest = _LINE_END.split(b"".join([*self._rest, chunk]))
        self._rest = [rest]
        events = [event for line in lines for event in self._read(line)]
        if not self._data:
            self.held = len(rest)
        elif events:
            self.held = len(chunk)
        return events

    def finish(self) -> list[str]:
        """The last event, where a stream ends without the empty line that closes it."""
        return [event for line in (b"".join(self._rest).rstrip(b"\r"), b"") for event in self._read(line)]

    def _read(self, line: bytes) -> list[str]:
        if self._is_first:
            line, self._is_first = line.removeprefix(BOM_UTF8), False
        if not line:
            data, self._data = self._data, []
            return [b"\n".join(data).decode(errors="replace")] if data else []
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return []
