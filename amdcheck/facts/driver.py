"""The amdgpu driver: loaded or not, in-tree or DKMS, its version in the strings of every era."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from amdcheck.facts.platform import Platform
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.knowledge.rocm import packaged_driver
from amdcheck.model.value import Known, Unknown, Value

MODULES = "/sys/module"
MODULE = "/sys/module/amdgpu"
DKMS = "/var/lib/dkms/amdgpu"
# Where a module may lie below /lib/modules/RELEASE; all but the last are out-of-tree.
_MODULE_FOLDERS = (
    "updates/dkms",
    "updates",
    "extra/amdgpu",
    "extra",
    "weak-updates/amdgpu",
    "weak-updates",
    "kernel/drivers/gpu/drm/amd/amdgpu",
)
_IN_TREE = "/kernel/drivers/gpu/drm/"
_MODPROBE_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d")
_MODPROBE_FILES = 64  # at most, per folder
# modules.dep of a distribution kernel is below 1 MiB; read only when no listing of the folders above answers.
_DEPENDENCIES_LIMIT = 2 << 20
_DKMS_HELPERS = frozenset({"amdkcl", "amdttm", "amd_sched"})  # modules that only AMD's packages bring

Kind = Literal["dkms", "in-tree", "absent"]


@fact
class Driver(Struct, frozen=True, kw_only=True):
    """`kind` absent means: not loaded. An in-tree module has no version string of its own; that is no fault."""

    loaded: Value[bool]
    kind: Value[Kind]
    initstate: Value[str]  # live, coming, going; `absent` for a module built into the kernel
    module_version: Value[str]  # /sys/module/amdgpu/version: 6.14.14, 6.19.14.31400100
    packaged: Value[str]  # the release that string stands for: 30.10, 31.40.1, ROCm 6.2
    srcversion: Value[str]
    taint: Value[str]  # flags of /sys/module/amdgpu/taint: O out-of-tree, E unsigned; empty for an in-tree module
    module_path: Value[str]  # the module file of the running kernel
    dkms_installed: Value[tuple[str, ...]]  # amdgpu versions in the DKMS tree, built for this kernel or not
    dkms_built: Value[tuple[str, ...]]  # those of them that are built for the running kernel
    blocked_by: tuple[Known[str], ...]  # what keeps a module that is not loaded from loading: the line, and its file
    kfd_device: Value[bool]  # /dev/kfd exists

    @classmethod
    def read(cls, host: Host, platform: Platform) -> Driver:
        modules = host.entries(MODULES)
        initstate = host.read(f"{MODULE}/initstate").parse(str.strip)
        loaded = _loaded(modules, initstate)
        version = host.read(f"{MODULE}/version").parse(_one_word)
        taint = host.read(f"{MODULE}/taint").parse(str.strip)
        installed = host.entries(DKMS).parse(_dkms_versions)
        if isinstance(installed, Unknown) and installed.reason == "absent":
            installed = Known((), DKMS)  # no DKMS tree: nothing is installed by it
        return cls(
            loaded=loaded,
            kind=_kind(modules, loaded, version, taint, initstate),
            initstate=initstate,
            module_version=version,
            packaged=_packaged(version),
            srcversion=host.read(f"{MODULE}/srcversion").parse(_one_word),
            taint=taint,
            module_path=_module_path(host, platform.kernel),
            dkms_installed=installed,
            dkms_built=_dkms_built(host, installed, platform.kernel),
            blocked_by=_blocked_by(host, platform) if loaded.or_none() is False else (),
            kfd_device=_exists(host, "/dev/kfd"),
        )

    @property
    def built_in(self) -> bool:
        """The module is part of the kernel image: it has a folder in sysfs, but no state."""
        return (
            self.loaded.or_none() is True and isinstance(self.initstate, Unknown) and self.initstate.reason == "absent"
        )


def _one_word(text: str) -> str:
    words = text.split()
    if len(words) != 1:
        raise ValueError(f"{text[:80]!r} is not one word")
    return words[0]


def _loaded(modules: Value[tuple[str, ...]], initstate: Value[str]) -> Value[bool]:
    """A module that is loaded has a folder in /sys/module; one built in has the folder without `initstate`."""
    if isinstance(initstate, Known):
        return Known(True, initstate.source)
    if isinstance(modules, Unknown):
        return modules
    return Known("amdgpu" in modules.value, modules.source)


def _kind(
    modules: Value[tuple[str, ...]],
    loaded: Value[bool],
    version: Value[str],
    taint: Value[str],
    initstate: Value[str],
) -> Value[Kind]:
    """Out-of-tree modules taint the kernel (O) and carry a version; the kernel's own amdgpu has neither."""
    if isinstance(loaded, Unknown):
        return loaded
    if not loaded.value:
        return Known("absent", loaded.source)
    if isinstance(version, Known):
        return Known("dkms", version.source)
    if isinstance(taint, Known):
        return Known("dkms" if "O" in taint.value else "in-tree", taint.source)
    helpers = _DKMS_HELPERS & set(modules.or_none() or ())
    if helpers:
        return Known("dkms", f"{MODULES}/{min(helpers)}")
    if initstate.or_none() is None and isinstance(initstate, Unknown) and initstate.reason == "absent":
        return Known("in-tree", MODULE)
    if version.reason == "absent":
        return Known("in-tree", version.source)
    return version


def _packaged(version: Value[str]) -> Value[str]:
    def name(text: str) -> str:
        driver = packaged_driver(text)
        if driver is None:
            raise ValueError(f"{text[:80]} is not in the table of driver versions")
        return driver.text

    return version.parse(name)


def _dkms_versions(names: tuple[str, ...]) -> tuple[str, ...]:
    """Version folders of the DKMS tree; beside them lie kernel-RELEASE-ARCH links and original_module."""
    return tuple(name for name in names if re.match(r"\d+\.", name))


def _dkms_built(host: Host, installed: Value[tuple[str, ...]], kernel: Value[str]) -> Value[tuple[str, ...]]:
    """Versions that have a folder for the running kernel."""
    if isinstance(installed, Unknown):
        return installed
    if isinstance(kernel, Unknown):
        return kernel if installed.value else Known((), installed.source)
    built = []
    for version in installed.value:
        kernels = host.entries(f"{DKMS}/{version}")
        if isinstance(kernels, Unknown):
            return kernels
        if kernel.value in kernels.value:
            built.append(version)
    return Known(tuple(built), installed.source)


def _module_path(host: Host, kernel: Value[str]) -> Value[str]:
    """The module file that modprobe takes: out-of-tree folders come before the kernel's own.

    `absent` only where the kernel's modules are there and amdgpu is not among them; in a container they are not seen.
    """
    if isinstance(kernel, Unknown):
        return Unknown("failed", kernel.source, "the kernel's release is not known")
    base = f"/lib/modules/{kernel.value}"
    if "/" in kernel.value or kernel.value in ("", ".", ".."):
        return Unknown("failed", kernel.source, "not a kernel release")
    there = host.entries(base)
    if isinstance(there, Unknown):
        return Unknown("failed", base, f"the kernel's modules are not seen here ({there.reason})")
    for folder in _MODULE_FOLDERS:
        for name in host.entries(f"{base}/{folder}").or_none() or ():
            if re.fullmatch(r"amdgpu\.ko(\.(xz|zst|gz))?", name):
                return Known(f"{base}/{folder}/{name}", f"{base}/{folder}")
    dependencies = host.read(f"{base}/modules.dep", limit=_DEPENDENCIES_LIMIT)
    if isinstance(dependencies, Unknown):
        return Unknown("failed", base, f"modules.dep: {dependencies.reason}")
    match = re.search(r"^(\S*/amdgpu\.ko(?:\.\w+)?):", dependencies.value, re.MULTILINE)
    if match is None:
        return Unknown("absent", dependencies.source, "no amdgpu module for this kernel")
    return Known(match[1] if match[1].startswith("/") else f"{base}/{match[1]}", dependencies.source)


def is_in_tree(module_path: str) -> bool:
    """Does a module file belong to the kernel itself?"""
    return _IN_TREE in module_path


def _blocked_by(host: Host, platform: Platform) -> tuple[Known[str], ...]:
    """Boot options and modprobe lines that keep amdgpu from loading."""
    found = [
        Known(word, platform.command_line.source)
        for word in (platform.command_line.or_none() or "").split()
        if _blocks(word)
    ]
    for folder in _MODPROBE_FOLDERS:
        for name in (host.entries(folder).or_none() or ())[:_MODPROBE_FILES]:
            if name.endswith(".conf"):
                text = host.read(f"{folder}/{name}").or_none() or ""
                found += [Known(line, f"{folder}/{name}") for line in _blocking_lines(text)]
    return tuple(found)


def _blocks(option: str) -> bool:
    """nomodeset makes amdgpu refuse to start; the others name modules that modprobe must not load."""
    name, _, value = option.partition("=")
    if name in ("nomodeset", "amdgpu.modeset"):
        return name == "nomodeset" or value == "0"
    lists = ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist")
    return name in lists and "amdgpu" in value.split(",")


def _blocking_lines(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if re.match(r"blacklist amdgpu$|install amdgpu (/usr)?/bin/(false|true)", line)]


def _exists(host: Host, path: str) -> Value[bool]:
    stat = host.stat(path)
    if isinstance(stat, Known):
        return Known(True, stat.source)
    return Known(False, stat.source) if stat.reason == "absent" else stat
