"""`tunedeck uncordon NODE`: let nodes take new runs again."""

from __future__ import annotations

import argparse

from agent import wire
from console.commands.cordon import add_nodes, change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_nodes(parser)


def run(args: argparse.Namespace) -> int:
    return change(args, wire.Cordon(False))
