"""The first line on the daemon's socket: what the bridge says about itself before the console can say anything."""

from __future__ import annotations

from dataclasses import dataclass

from agent import codec, wire


@dataclass(frozen=True, slots=True)
class Bridge:
    """`read_only` is from the command line of `attach`: a forced command decides it and no console can undo it."""

    protocol: int
    version: str
    read_only: bool

    def supersedes(self, protocol: int, other: str) -> bool:
        """True when a daemon of that protocol and version has to give way to the one this bridge would start."""
        return not self.read_only and (self.protocol, version(self.version)) > (protocol, version(other))


def own_bridge(read_only: bool) -> Bridge:
    return Bridge(wire.PROTOCOL, wire.VERSION, read_only)


def read_bridge(line: bytes) -> Bridge:
    """Raises Malformed."""
    return codec.unpack(Bridge, codec.parse(line))


def version(text: str) -> tuple[int, ...]:
    """Numbers of a version for comparing; anything that is none counts as 0."""
    return tuple(int(part) if part.isdecimal() else 0 for part in text.split(".")[:4])
