"""The agent's way to a node: one command line that any login shell takes, and the bundle where it is missing.

The line finds a Python, and Python runs `console.bootstrap`, which asks for the bundle only if the node lacks it. What
a login script prints before is discarded: ours begins with a nonce that the command line itself does not contain.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import importlib.util
import io
import platform
import re
import secrets
import sys
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import configs
from agent.wire import clean
from console.refusal import HINTS, Refusal, from_openssh
from console.stream import Closed, Stream, read_until
from console.strings import _

HERE = Path(__file__).resolve().parent
PACKAGES = ("agent", "jobs", "configs")
NOISE_LIMIT_BYTES = 64 * 1024
LINE_LIMIT_BYTES = 4096
SHELL_TIMEOUT_S = 20.0
"""From the log-in to our first line: a login script may take its time."""
UNPACK_TIMEOUT_S = 60.0
INTERPRETERS = (
    *("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"),
    *("$TUNEDECK_HOME/env/bin/python3", "$HOME/.tunedeck/env/bin/python3"),
    *("$HOME/miniconda3/bin/python3", "$HOME/miniforge3/bin/python3", "$HOME/anaconda3/bin/python3"),
    *("$HOME/mambaforge/bin/python3", "/opt/conda/bin/python3", "/opt/miniconda3/bin/python3"),
    *("/opt/anaconda3/bin/python3", "/opt/miniforge3/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3"),
    *("/opt/venv/bin/python3", "/venv/bin/python3", "/venv/main/bin/python3", "/workspace/venv/bin/python3"),
    *("$HOME/.pyenv/versions/*/bin/python3", "$HOME/.local/share/uv/python/*/bin/python3"),
    *("$HOME/venv/bin/python3", "$HOME/.venv/bin/python3", "$HOME/.local/bin/python3"),
)
EXHAUSTED = (
    *("cannot fork", "fork: retry", "temporarily unavailable", "pipe call failed", "too many open files"),
    "cannot allocate memory",
)
"""How shells and Python say that a limit of processes, files or memory is reached."""
_packing = threading.Lock()
_SAFE = re.compile(r"[A-Za-z0-9_./~+@:=,-]*")


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a node needs of tunedeck, packed. `name` is made from the content: same content, same name."""

    name: str
    packed: bytes
    count: int
    """Files."""


def bundle() -> Bundle:
    """This installation's bundle, packed once for all links."""
    with _packing:
        return _bundle()


@functools.cache
def _bundle() -> Bundle:
    return pack(dict(files()))


def files() -> Iterator[tuple[str, Path]]:
    """(path within the bundle, file). The same from a checkout and from an installed wheel."""
    base = Path(configs.__file__).resolve().parent.parent
    for package in PACKAGES:
        for path in sorted((base / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(base).as_posix(), path
    yield "enter.py", HERE / "enter.py"
    yield from vendored("pynvml", "vendor", (".py",))
    yield from vendored("yaml", "vendor", (".py",))
    if sys.platform == "linux":  # psutil's binary is abi3: any Python >= 3.6 of this platform can load it
        yield from vendored("psutil", f"vendor/linux-{platform.machine()}", (".py", ".abi3.so"))


def vendored(module: str, folder: str, endings: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """The files of an installed module, without looking into it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    base = origin.parent.parent if spec.submodule_search_locations else origin.parent
    found = sorted(origin.parent.rglob("*")) if spec.submodule_search_locations else [origin]
    for path in found:
        if path.name.endswith(endings) and "tests" not in path.parts:
            yield f"{folder}/{path.relative_to(base).as_posix()}", path


def pack(content: dict[str, Path]) -> Bundle:
    """The files and a MANIFEST of their digests as one .tar.gz."""
    data = {name: path.read_bytes() for name, path in sorted(content.items())}
    manifest = "".join(f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in data.items()).encode()
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=4, mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, text in {**data, "MANIFEST": manifest}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o600
            archive.addfile(entry, io.BytesIO(text))
    return Bundle(hashlib.sha256(manifest).hexdigest()[:16], packed.getvalue(), len(data))


@functools.cache
def squeezed_bootstrap() -> str:
    return base64.b64encode(zlib.compress((HERE / "bootstrap.py").read_bytes(), 9)).decode("ascii")


def command_line(carried: Bundle, nonce: tuple[str, str], home: str, python: str, arguments: tuple[str, ...]) -> str:
    """One line for sh, dash, bash, zsh, tcsh and fish alike: no newline, quote, backslash or `!` within the quotes.

    The nonce stands there in two halves, so that an echo of the command is not taken for the answer.
    """
    for word in (home, python, *arguments):
        if not _SAFE.fullmatch(word):
            raise ValueError(f"{word!r} cannot stand in a command line")
    first = f'"{python.replace("~", "$HOME", 1)}" ' if python else ""
    search = " ".join(place if "*" in place else f'"{place}"' for place in INTERPRETERS)
    words = " ".join(f'"{word}"' for word in (carried.name, str(len(carried.packed)), home, *arguments))
    load = "import base64,sys,zlib;exec(zlib.decompress(base64.b64decode(sys.argv.pop(1))))"
    script = (
        f"a={nonce[0]}; b={nonce[1]}; seen=; stuck=; "
        f"for p in {first}{search}; do "
        'q=$(command -v "$p" 2>/dev/null) || continue; '
        'v=$("$q" -I -S -c "import sys; print(sys.version.split()[0]); sys.exit(sys.version_info < (3, 10))" '
        "2>/dev/null </dev/null); r=$?; "
        f'if [ $r -eq 0 ]; then exec "$q" -I -S -c "{load}" {squeezed_bootstrap()} $a$b {words}; fi; '
        'if [ $r -eq 126 ]; then stuck="$stuck $q"; else seen="$seen $q=$v"; fi; '
        "done; "
        'if [ -n "$stuck" ]; then echo "$a$b noexec$stuck"; else echo "$a$b no-python$seen"; fi'
    )
    return f"exec sh -c '{script}'"


def fresh_nonce() -> tuple[str, str]:
    return f"td{secrets.token_hex(8)}", secrets.token_hex(8)


def enter(stream: Stream, nonce: tuple[str, str], carried: Bundle, carrying: Callable[[], None]) -> bytes:
    """From the login shell to the agent. Calls `carrying` if the bundle has to be sent.

    Returns bytes of the agent that came along. Raises Refusal.
    """
    mark, bell = "".join(nonce).encode(), threading.Event()
    stream.notify(bell)
    word, text, rest = _heard(stream, bell, mark, b"", SHELL_TIMEOUT_S)
    if word == "need":
        carrying()
        try:
            stream.write(carried.packed)
        except Closed:
            pass  # why, the node has said: a full disk ends the bootstrap before it has read everything
        except TimeoutError as error:
            raise Refusal("timeout", _("the node takes in nothing more")) from error
        word, text, rest = _heard(stream, bell, mark, rest, UNPACK_TIMEOUT_S)
    if word == "ready":
        return rest
    if word == "no-python":
        found = ", ".join(dict.fromkeys(text.split())) or _("none at all")
        raise Refusal("no-python", _("no Python 3.10 or newer on the node; found: {found}").format(found=found))
    if word == "noexec":
        raise Refusal("noexec", _("the node does not let {python} run").format(python=text))
    raise Refusal(word if word in HINTS else "garbled", text or _("the node answered {word!r}").format(word=word))


def _heard(stream: Stream, bell: threading.Event, mark: bytes, data: bytes, timeout_s: float) -> tuple[str, str, bytes]:
    """The next line that begins with the nonce, as (word, text, bytes behind it). Raises Refusal."""
    line = re.compile(re.escape(mark) + rb" ([^\n]{0,%d})\n" % LINE_LIMIT_BYTES)
    try:
        data += read_until(stream, bell, lambda new: line.search(data + new) is not None, NOISE_LIMIT_BYTES, timeout_s)
    except TimeoutError as error:
        raise Refusal(
            "timeout", _("logged in, but the shell has not run our line after {s:.0f} s").format(s=timeout_s)
        ) from error
    found = line.search(data)
    if found is None:
        raise _no_answer(stream, data)
    word, _space, text = clean(found[1].decode("utf-8", "replace")).partition(" ")
    return word, text[:500], data[found.end() :]


def _no_answer(stream: Stream, data: bytes) -> Refusal:
    """Our line was not run: what did the other end say instead?"""
    whole = clean(data[-16384:].decode("utf-8", "replace") + "\n" + stream.complaint())
    said = " / ".join(line.strip()[:200] for line in [text for text in whole.splitlines() if text.strip()][-3:])
    status = stream.exit_status()
    if len(data) >= NOISE_LIMIT_BYTES:
        return Refusal("garbled", _("the login shell wrote {n} bytes and did not run our line").format(n=len(data)))
    if "pam_slurm_adopt" in said or "no active jobs on this node" in said:
        return Refusal("denied", said)
    if any(sign in said.lower() for sign in EXHAUSTED):
        return Refusal("exhausted", _("the node cannot start another program; it said: {said}").format(said=said))
    if stream.via.startswith("system ssh") and status == 255 and (refusal := from_openssh(stream.complaint())):
        return refusal
    if status is None and not said:
        return Refusal("lost", _("the connection ended before the login shell answered"))
    message = _("the login shell did not run our line; it said: {said}").format(said=said or _("nothing"))
    return Refusal("restricted-shell", message)
