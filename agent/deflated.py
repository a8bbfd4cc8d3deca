"""Lines of one direction of one conversation, deflated: figures that tremble each second repeat all but the figures.

A deflated line is "~" and base64, so it is a line among lines: plain ones may stand between. The window is kept small,
for a console keeps one for each of a thousand nodes.
"""

from __future__ import annotations

import base64
import binascii
import zlib

from agent.codec import LINE_LIMIT_BYTES, Malformed

MARK = b"~"
WINDOW_BITS = 13
"""8 KiB: eight seconds of a busy node; a larger one saved 2 % and costs each link that memory."""
SYNC = b"\x00\x00\xff\xff"
"""How every flushed piece ends (RFC 7692, 7.2.1): not sent."""


class Deflater:
    def __init__(self) -> None:
        self.state = zlib.compressobj(6, zlib.DEFLATED, -WINDOW_BITS)

    def line(self, line: bytes) -> bytes:
        """`line` with its newline in, one with its newline out. The other side must take every one, in order."""
        piece = self.state.compress(line) + self.state.flush(zlib.Z_SYNC_FLUSH)
        return MARK + base64.b64encode(piece.removesuffix(SYNC)) + b"\n"


class Inflater:
    def __init__(self) -> None:
        self.state = zlib.decompressobj(-WINDOW_BITS)

    def line(self, line: bytes) -> bytes:
        """The line as it was; a plain one as it is. Raises Malformed, also for one beyond the limit of a line."""
        if not line.startswith(MARK):
            return line
        try:
            piece = base64.b64decode(line[1:], validate=True) + SYNC
            found = self.state.decompress(piece, LINE_LIMIT_BYTES)
        except (binascii.Error, zlib.error) as error:
            raise Malformed(f"not deflated: {error}") from error
        if self.state.unconsumed_tail:
            raise Malformed(f"inflates beyond {LINE_LIMIT_BYTES} bytes")
        return found.removesuffix(b"\n")
