"""The NVIDIA driver: there, answering, of one version, and new enough for the torch that is to run on it."""

from __future__ import annotations

import re

from agent import interpreters
from agent.checks.check import Told, fault, good, probe, unknown, watch
from agent.checks.scene import Scene
from agent.nvml import NO_DRIVER

NVIDIA, DISPLAYS, BRIDGE = "0x10de", ("0x0300", "0x0302"), "0x0680"
"""PCI vendor, and classes of VGA and 3D controllers and of NVSwitches (pci.ids)"""
OLD_S = 30.0
MODULE = re.compile(r"Kernel Module[^\d]*(\d+\.\d+(?:\.\d+)?)")


def devices(scene: Scene, *classes: str) -> list[str]:
    """PCI addresses of NVIDIA's devices of these classes, as sysfs shows them."""
    folder = "sys/bus/pci/devices"
    return [
        name
        for name in scene.names(folder)
        if scene.text(f"{folder}/{name}/vendor") == NVIDIA
        and (scene.text(f"{folder}/{name}/class") or "").startswith(classes)
    ]


def nvml(scene: Scene) -> Told:
    there = devices(scene, *DISPLAYS)
    if scene.gpu_age_s is not None and scene.gpu_age_s > OLD_S:
        return fault(
            "NVML does not answer: a call is stuck in the driver",
            scene.gpu_note,
            "Only a GPU reset or a reboot ends that; live runs may go on.",
        )
    if scene.gpus:
        return good("the driver answers", f"driver {scene.host.driver_version or 'of unknown version'}")
    if scene.gpu_note == NO_DRIVER and not there:
        return unknown("this node has no NVIDIA GPU: nothing to check")
    if scene.gpu_note == NO_DRIVER:
        return fault(
            f"{len(there)} NVIDIA GPUs are on the PCI bus, but there is no driver",
            ", ".join(there),
            "Install the driver (root); in a container, start it with --gpus all.",
        )
    if scene.gpu_note:
        return fault(scene.gpu_note, "", "Until that is mended no GPU check says anything.")
    return unknown("the GPUs have not been read yet", "", "Check again in some seconds.")


def versions(scene: Scene) -> Told | None:
    """The module in the kernel against the library that programs load."""
    loaded, library = MODULE.search(scene.text("proc/driver/nvidia/version") or ""), scene.host.driver_version
    if loaded is None or not library:
        return None
    if loaded[1] != library:
        return fault(
            "the driver's library and its kernel module differ: new CUDA programs will not start",
            f"kernel module {loaded[1]}, library {library}",
            "Reboot, or reload the modules (root).",
        )
    return good("library and kernel module are of one version", library)


def torch(scene: Scene) -> Told | None:
    """Where an environment is named: its CUDA against the newest that the driver serves."""
    if not scene.python or not scene.cards:
        return None
    found, why = interpreters.examine(scene.python)
    if found is None:
        return unknown(f"{scene.python} {why}", "", "Name the Python that trains.")
    if found.cuda is None:
        return fault("torch is a CPU build although there are GPUs", scene.python, "Install a CUDA build of torch.")
    serves = numbers(scene.host.cuda_version)
    if not serves:
        return unknown("the driver does not say which CUDA it serves", f"torch was built for {found.cuda}")
    return judged(
        numbers(found.cuda),
        serves,
        f"torch was built for CUDA {found.cuda}; driver {scene.host.driver_version} serves {scene.host.cuda_version}",
    )


def judged(built: tuple[int, ...], serves: tuple[int, ...], evidence: str) -> Told:
    """Within one major version older drivers serve newer builds (CUDA compatibility guide, minor version)."""
    if built[:1] > serves[:1]:
        return fault("the driver is too old for this torch", evidence, "Update the driver, or install an older build.")
    if built > serves:
        return watch(
            "torch is newer than the driver: what is compiled on the spot (Triton, JIT) may fail",
            evidence,
            "Update the driver when it can be, or install the matching build.",
        )
    return good("the driver serves the CUDA of this torch", evidence)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d+", version)[:2])


PROBES = (probe("nvml", nvml), probe("versions", versions), probe("torch", torch, interpreters.DEADLINE_S + 2))
