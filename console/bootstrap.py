"""Runs on the node, before anything of ours lies there: takes the bundle in if it is missing, and enters it.

Standard library only, Python >= 3.10, sent as text by console.carry. The conversation is one line per step, each
beginning with a nonce: `need` (the console then sends the packed bundle), `ready`, or the kind of a refusal.
A bundle is named after the digest of its MANIFEST, and the MANIFEST holds the digest of every file.
"""

import errno
import hashlib
import io
import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

MANIFEST = "MANIFEST"
LIMIT_BYTES = 64 * 1024 * 1024
KINDS = {
    errno.ENOSPC: "disk-full",
    errno.EDQUOT: "disk-full",
    errno.EMFILE: "exhausted",
    errno.ENFILE: "exhausted",
    errno.EAGAIN: "exhausted",
    errno.ENOMEM: "exhausted",
    errno.EROFS: "read-only-home",
    errno.EACCES: "read-only-home",
    errno.EPERM: "read-only-home",
    errno.ENOTDIR: "read-only-home",
    errno.EEXIST: "read-only-home",
}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def whole(folder: Path, name: str) -> bool:
    """The folder holds every file of the bundle called `name`, byte for byte."""
    try:
        manifest = (folder / MANIFEST).read_bytes()
        lines = [line.split("  ", 1) for line in manifest.decode().splitlines()]
        return digest(manifest)[:16] == name and all(digest((folder / path).read_bytes()) == due for due, path in lines)
    except (OSError, ValueError):
        return False


def receive(count: int) -> bytes:
    """Exactly `count` bytes of stdin, unbuffered: what follows them is for the agent."""
    parts = []
    while count:
        part = os.read(0, min(count, 65536))
        if not part:
            sys.exit(0)  # the console has hung up
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def unpack(data: bytes, folder: Path) -> None:
    """Plain files with relative names only, whoever packed them. Raises OSError, tarfile.TarError, ValueError."""
    left = LIMIT_BYTES
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            parts = Path(member.name).parts
            left -= member.size
            content = archive.extractfile(member)
            if content is None or left < 0 or member.name.startswith("/") or ".." in parts:
                raise ValueError(f"not a file of ours: {member.name[:80]!r}")
            path = folder.joinpath(*parts)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("xb") as file:  # no fsync: what a crash damages is noticed at the next entry and sent again
                file.write(content.read())


def publish(data: bytes, place: Path) -> None:
    """Unpack beside `place`, verify, rename. Another node that shares this home may do the same at the same time."""
    draft = place.with_name(f".{place.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        draft.mkdir(mode=0o700)
        unpack(data, draft)
        if not whole(draft, place.name):
            raise ValueError("what arrived is not what was sent")
        if place.exists() and not whole(place, place.name):
            place.rename(draft.with_name(draft.name + ".bad"))
        try:
            draft.rename(place)
        except OSError:
            if not whole(place, place.name):
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(draft.with_name(draft.name + ".bad"), ignore_errors=True)


def prepare(place: Path, size: int, say: Callable[[str], None]) -> str:
    """Makes sure that `place` holds the bundle. Returns the refusal, empty if there is none."""
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not whole(place, place.name):
            say("need")
            publish(receive(size), place)
    except (ValueError, tarfile.TarError) as error:
        return f"garbled the agent's files were damaged on the way: {error}"
    except OSError as error:
        return f"{KINDS.get(error.errno or 0, 'agent-failed')} {place.parent.parent} on the node: {error}"
    return ""


def main() -> None:
    nonce, name, size, home, *arguments = sys.argv[1:]

    def say(text: str) -> None:
        os.write(1, f"{nonce} {' '.join(text.split())}\n".encode("utf-8", "replace"))

    # Path.expanduser raises where there is no such user
    base = Path(os.path.expanduser(home or os.environ.get("TUNEDECK_HOME") or "~/.tunedeck"))  # noqa: PTH111
    usual = os.umask(0o077)
    refusal = prepare(base / "bundles" / name, int(size), say)
    os.umask(usual)
    if refusal:
        say(refusal)
        sys.exit(1)
    os.environ["TUNEDECK_HOME"] = str(base)
    say(f"ready {sys.version.split()[0]} {sys.executable}")
    os.execv(sys.executable, [sys.executable, str(base / "bundles" / name / "enter.py"), *arguments])


if __name__ == "__main__":
    main()
