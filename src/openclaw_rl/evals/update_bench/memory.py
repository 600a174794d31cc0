"""What a process occupies, in bytes of resident memory.

Linux tells the peak since it was last forgotten, macOS the peak of the whole process. Imports nothing but
the standard library, since rivals' environments run it too.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from pathlib import Path


def forget_peak() -> None:
    """Let the peak begin anew, where the system can: loading a model takes more than a step may."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes() -> int:
    """The most since the peak was forgotten."""
    return _status("VmHWM") or _most_ever()


def now_bytes() -> int:
    """At this moment; where the system does not tell, the most so far."""
    return _status("VmRSS") or _most_ever()


def resident_bytes(pid: int) -> int:
    """Of another process, at this moment."""
    if found := _status("VmRSS", str(pid)):
        return found
    asked = ["/bin/ps", "-o", "rss=", "-p", str(pid)]
    told = subprocess.run(asked, capture_output=True, text=True, check=True)
    return int(told.stdout) * 1024


def _status(name: str, process: str = "self") -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _most_ever() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
