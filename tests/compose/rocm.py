"""The amdgpu module on disk, ROCm installations with MIOpen and its databases, and the packages they came in."""

from __future__ import annotations

import functools
import sqlite3
import tempfile
from pathlib import Path

from tests.compose.description import Rocm
from tests.compose.plan import Plan
from tests.compose.products import os_release, rocm_release
from tests.compose.tree import Tree

_ELF = b"\x7fELF\x02\x01\x01" + bytes(57)  # enough of a library for whoever looks at its first bytes


def root_of(rocm: Rocm) -> str:
    """Where this installation lies: /opt/rocm-6.3.3, from 7.14 on /opt/rocm/core-10.0."""
    if rocm_release(rocm.version).layout == "core":
        return f"/opt/rocm/core-{rocm.version.rpartition('.')[0]}"
    return f"/opt/rocm-{rocm.version}"


def write_software(tree: Tree, plan: Plan) -> None:
    """Module files and every ROCm installation; the last one is what /opt/rocm leads to."""
    _write_module_files(tree, plan)
    for rocm in plan.machine.rocm:
        _write_rocm(tree, rocm, smi=plan.machine.smi.installed)
    if plan.machine.rocm:
        _write_alternatives(tree, plan.machine.rocm[-1])


def _write_module_files(tree: Tree, plan: Plan) -> None:
    kernel, driver = plan.machine.os.kernel, plan.machine.driver
    base = f"/lib/modules/{kernel}"
    in_tree = "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko"
    tree.files[f"{base}/{in_tree}"] = _ELF  # every distribution kernel has one
    lines = [f"{in_tree}: kernel/drivers/gpu/drm/ttm/ttm.ko"]
    if plan.dkms and driver:
        package, dkms = plan.dkms.package, "/var/lib/dkms/amdgpu"
        tree.links[f"{dkms}/{package}/source"] = f"/usr/src/amdgpu-{package}"
        tree.files[f"/usr/src/amdgpu-{package}/dkms.conf"] = (
            f'PACKAGE_NAME="amdgpu"\nPACKAGE_VERSION="{package}"\nAUTOINSTALL="yes"\n'
        )
        if driver.built:
            built = f"{dkms}/{package}/{kernel}/x86_64"
            tree.files[f"{built}/module/amdgpu.ko.zst"] = _ELF
            tree.files[f"{built}/log/make.log"] = "DKMS make.log\n"
            tree.links[f"{dkms}/kernel-{kernel}-x86_64"] = f"{package}/{kernel}/x86_64"
            tree.files[f"{base}/updates/dkms/amdgpu.ko.zst"] = _ELF
            lines = ["updates/dkms/amdgpu.ko.zst: updates/dkms/amdttm.ko.zst updates/dkms/amdkcl.ko.zst"]
    tree.files[f"{base}/modules.dep"] = "".join(f"{line}\n" for line in lines)


def _write_rocm(tree: Tree, rocm: Rocm, *, smi: bool) -> None:
    release, root = rocm_release(rocm.version), root_of(rocm)
    build = f"-{release.build}" if release.build else ""
    tree.files[f"{root}/.info/version"] = f"{rocm.version}{build}\n"
    for tool in ("rocminfo", "hipcc", *(("rocm-smi", "amd-smi") if smi else ())):
        tree.files[f"{root}/bin/{tool}"] = "#!/usr/bin/env python3\n" if "smi" in tool else _ELF
    number = _release_number(rocm.version)
    libraries = {"librocm-core.so.1": f"1.0.{number}", "libamdhip64.so": f"7.{release.hip.partition('.')[2]}"}
    for name, suffix in libraries.items():
        _library(tree, root, name.partition(".so")[0], name.rpartition(".so.")[2] if ".so." in name else "7", suffix)
    if rocm.miopen:
        _write_miopen(tree, rocm, root)


def _release_number(version: str) -> str:
    """6.3.3 as it ends library names: 60303."""
    major, minor, patch = map(int, version.split("."))
    return f"{major * 10000 + minor * 100 + patch}"


def _library(tree: Tree, root: str, name: str, soname: str, suffix: str) -> None:
    """A library with its two links: libX.so -> libX.so.1 -> libX.so.1.0.60303."""
    real = f"{name}.so.{suffix}"
    tree.files[f"{root}/lib/{real}"] = _ELF
    tree.links[f"{root}/lib/{name}.so.{soname}"] = real
    tree.links[f"{root}/lib/{name}.so"] = f"{name}.so.{soname}"


def _write_miopen(tree: Tree, rocm: Rocm, root: str) -> None:
    of = rocm.miopen_of or rocm.version
    release = rocm_release(of)
    _library(tree, root, "libMIOpen", "1", f"1.0.{_release_number(of)}")
    fields = zip(("MAJOR", "MINOR", "PATCH"), release.miopen.split("."), strict=True)
    header = "".join(f"#define MIOPEN_VERSION_{name} {value}\n" for name, value in fields)
    tree.files[f"{root}/include/miopen/version.h"] = f"#ifndef GUARD_MIOPEN_VERSION_H_\n{header}#endif\n"
    databases = f"{root}/share/miopen/db"
    for base in release.find:
        tree.files[f"{databases}/{base}.HIP.fdb.txt"] = _FIND
    for base in release.perf:
        tree.files[f"{databases}/{base}.db.txt"] = _PERF
    for gfx in ("gfx908", "gfx90a", "gfx942"):
        tree.files[f"{databases}/{gfx}.tn.model"] = b"\0" * 64
    if rocm.kernel_databases:
        for gfx in release.kernels:
            tree.files[f"{databases}/{gfx}.kdb"] = kernel_database()


# One convolution each, in the form of the text databases: problem=solver:values.
_FIND = (
    "64-56-56-3x3-64-56-56-64-1x1-1x1-1x1-0-NCHW-FP32-F="
    "miopenConvolutionFwdAlgoWinograd:ConvBinWinogradRxSf2x3g1,0.09,0,miopenConvolutionFwdAlgoWinograd\n"
)
_PERF = "64x56x56x3x3x64x56x56x64x1x1x1x1x1x1x0xNCHWxFP32xF=ConvAsm1x1U:1,8,2,64,1,4,1,8\n"


@functools.cache
def kernel_database() -> bytes:
    """A .kdb as MIOpen writes it: SQLite with the one table, holding one kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.kdb")
        database = sqlite3.connect(path)
        with database:
            database.execute(
                "CREATE TABLE kern_db (id INTEGER PRIMARY KEY ASC, kernel_name TEXT NOT NULL, "
                "kernel_args TEXT NOT NULL, kernel_blob BLOB NOT NULL, kernel_hash TEXT NOT NULL, "
                "uncompressed_size INT NOT NULL)"
            )
            row = ("xform_out.cpp.o", "-mcpu=gfx90a", b"BZh9" + bytes(2048), "0" * 32, 4096)
            database.execute("INSERT INTO kern_db VALUES (1, ?, ?, ?, ?, ?)", row)
        database.close()
        return path.read_bytes()


def _write_alternatives(tree: Tree, rocm: Rocm) -> None:
    root = root_of(rocm)
    if rocm_release(rocm.version).layout == "core":
        tree.links["/opt/rocm/core"] = root.rpartition("/")[2]
        tree.links["/opt/rocm/bin"] = f"{root}/bin"
        tree.links["/opt/rocm/lib"] = f"{root}/lib"
    else:
        tree.links["/opt/rocm"] = "/etc/alternatives/rocm"
        tree.links["/etc/alternatives/rocm"] = root


def packages(plan: Plan) -> dict[str, str]:
    """What dpkg says is installed, by name: version."""
    found: dict[str, str] = {}
    distribution = os_release(plan.machine.os.release)
    if plan.dkms:
        found["amdgpu-dkms"] = f"1:{plan.dkms.package}"
    for rocm in plan.machine.rocm:
        release, number = rocm_release(rocm.version), _release_number(rocm.version)
        tail = f"-{release.build or 1}~{distribution.version_id}"
        if release.layout == "core":
            found |= {"amdrocm-base": f"{rocm.version}{tail}", "amdrocm-dnn": f"{release.miopen}{tail}"}
            continue
        found["rocm-core"] = f"{rocm.version}.{number}{tail}"
        if rocm.miopen:
            found["miopen-hip"] = f"{release.miopen}.{number}{tail}"
        if plan.machine.smi.installed:
            found |= {"rocm-smi-lib": f"{release.smi}.{number}{tail}", "amd-smi-lib": f"25.0.0.{number}{tail}"}
    return found
