"""What NCCL's own RAS says about a running job: asked as `ncclras -v` asks, where a job on this machine listens."""

from __future__ import annotations

import socket
import time

PORT = 28028
"""NCCL documentation, RAS: NCCL_RAS_ADDR, by default localhost:28028"""
ANSWER_S = 15.0
MOST_BYTES = 1 << 20
APART_S = 1.0
_HELLO, _ASK = b"CLIENT PROTOCOL 2\n", b"VERBOSE STATUS\n"


def address(told: str = "") -> tuple[str, int]:
    """Host and port as NCCL_RAS_ADDR gives them; the default where it is empty or no address."""
    host, colon, port = told.rpartition(":")
    return (host.strip("[]"), int(port)) if colon and host and port.isdecimal() else ("localhost", PORT)


def status(where: tuple[str, int], deadline_s: float = ANSWER_S) -> str | None:
    """One report as text; None where nothing listens or what listens is not RAS. Raises nothing else."""
    end = time.monotonic() + deadline_s
    told = b""
    try:
        with socket.create_connection(where, timeout=min(1.0, deadline_s)) as link:
            link.sendall(_HELLO)
            greeting = link.recv(256)
            if not greeting.startswith(b"SERVER PROTOCOL"):
                return None
            link.sendall(_ASK)
            while len(told) < MOST_BYTES and (left := end - time.monotonic()) > 0:
                link.settimeout(left)
                piece = link.recv(65536)
                if not piece:
                    break
                told += piece
    except TimeoutError:
        pass  # what came until then is worth reading: RAS waits for the very ranks that do not answer
    except OSError:
        return None
    return told.decode("utf-8", "replace") or None


def twice(told: str = "", apart_s: float = APART_S) -> list[str]:
    """Two reports, for in a healthy job counts differ for a moment; empty where nothing listens."""
    first = status(address(told))
    if first is None:
        return []
    time.sleep(apart_s)
    second = status(address(told))
    return [first] if second is None else [first, second]
