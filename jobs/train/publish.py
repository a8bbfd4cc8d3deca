"""The trained adapter or model, put in place whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from jobs import durable
from jobs.train import gate


def publish(model: Any, tokenizer: Any, target: Path) -> None:
    """Writes an ordinary peft or transformers folder at `target`; an older one there is replaced. Raises OSError."""
    staging = target.parent / f".{target.name}.{secrets.token_hex(4)}.staging"
    try:
        write(model, tokenizer, staging)
        gate.note(model, staging)
        settle(staging)
        replace(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write(model: Any, tokenizer: Any, folder: Path) -> None:
    from peft import PeftModel

    # "auto" would look the base model up on the hub to see whether its vocabulary was resized
    options = {"save_embedding_layers": False} if isinstance(model, PeftModel) else {}
    model.save_pretrained(folder, **options)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)  # peft's empty form for a model card


def settle(folder: Path) -> None:
    """Private modes and fsync for everything in `folder`."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            path.chmod(durable.FOLDER_MODE)
            durable.sync_folder(path)
            continue
        path.chmod(durable.FILE_MODE)
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def replace(staging: Path, target: Path) -> None:
    """Renames `staging` to `target`; what was there goes only after the new one stands."""
    previous = target.parent / f".{target.name}.previous"
    shutil.rmtree(previous, ignore_errors=True)
    if target.exists():
        target.rename(previous)
    staging.rename(target)
    durable.sync_folder(target.parent)
    shutil.rmtree(previous, ignore_errors=True)
