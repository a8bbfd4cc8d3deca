"""Runs on the node, in the bundle's folder: `python BUNDLE/enter.py attach`. What is imported comes from here.

pynvml and yaml are taken as carried, whatever the node has; of psutil the node's own goes first, because the carried
binary fits only some machines.
"""

import platform
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.path[:1] = [str(HERE), str(HERE / "vendor")]
    sys.path.append(str(HERE / "vendor" / f"{sys.platform}-{platform.machine()}"))
    runpy.run_module("agent.__main__", run_name="__main__", alter_sys=False)
