"""MIOpen: its library in each ROCm installation and in PyTorch wheels, and the databases that came with it."""

from __future__ import annotations

import re
from posixpath import dirname, join
from typing import Annotated

from msgspec import Meta, Struct

from amdcheck.facts.gpus import Gpus, has_amd_gpu
from amdcheck.facts.packages import Packages
from amdcheck.facts.registry import fact
from amdcheck.facts.rocm import RocmInstalls, RocmRoot, has_rocm, release_number, site_packages, wheel_version
from amdcheck.facts.selftests import Step, document_of, step_of
from amdcheck.host.protocol import Host, SelfTest
from amdcheck.knowledge import miopen as table
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Subject
from amdcheck.model.value import Known, Unknown, Value

SELFTEST = "miopen-version"
_LIBRARIES = ("lib/libMIOpen.so.1", "lib64/libMIOpen.so.1", "miopen/lib/libMIOpen.so.1", "miopen/lib/libMIOpen.so")
_USR_LIBRARIES = ("lib/x86_64-linux-gnu/libMIOpen.so.1", "lib64/libMIOpen.so.1")
_HEADERS = ("include/miopen/version.h", "miopen/include/miopen/version.h")
_KERNEL_DBS = 32  # at most, per folder
_SQLITE = b"SQLite format 3\0"


class KernelDb(Struct, frozen=True, kw_only=True):
    """A database of precompiled kernels; `is_sqlite` is False for what a pointer file of LFS or DVC left behind."""

    name: str
    is_sqlite: Value[bool]


class SystemDb(Struct, frozen=True, kw_only=True):
    """The databases that came with a library: the folder, all names in it, and the kernel databases among them."""

    path: str
    names: Value[tuple[str, ...]]
    kernel_dbs: tuple[KernelDb, ...]


class MiopenInstall(Struct, frozen=True, kw_only=True):
    """One library, or a ROCm installation that has none (`library` absent)."""

    root: str
    rocm_version: Value[str]  # of the installation it lies in
    library: Value[str]  # the real file: .../libMIOpen.so.1.0.60303
    built_for: Value[str]  # the ROCm release in the library's name
    api: Value[str]  # miopenGetVersion, asked at level standard and above
    header: Value[str]  # include/miopen/version.h, where the development package is
    package: Value[str]  # miopen-hip, asked at level standard and above
    system_db: SystemDb

    @property
    def subject(self) -> Subject:
        return Subject(kind="path", id=self.root)

    @property
    def version(self) -> Value[str]:
        """The library's version as it is said most directly: by the library, its header, its package."""
        stated = (self.api, self.header, self.package)
        return next((value for value in stated if isinstance(value, Known)), self.header)


class _Version(Struct, frozen=True, kw_only=True):
    version: Annotated[str, Meta(pattern=r"^[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}$")]


class _VersionStep(Step, frozen=True, kw_only=True):
    result: _Version | None


@fact
class MiopenInstalls(Struct, frozen=True, kw_only=True):
    """Every library found, and every ROCm installation that has none."""

    installs: tuple[MiopenInstall, ...]

    @classmethod
    def read(cls, host: Host, rocm: RocmInstalls, packages: Packages, expect: Expectations) -> MiopenInstalls:
        one_root = len([root for root in rocm.roots if root.layout != "wheel"]) == 1
        found = [_in_root(host, root, packages, expect, alone=one_root) for root in rocm.roots]
        return cls(installs=(*found, *_in_torch(host, rocm, expect)))


def has_miopen(miopen: MiopenInstalls, rocm: RocmInstalls, gpus: Gpus) -> str | None:
    """Predicate: None when there is a library, or a ROCm installation that should have one; else the reason to skip."""
    return None if miopen.installs else has_rocm(rocm, gpus)


def has_library_for_gpus(gpus: Gpus, miopen: MiopenInstalls) -> str | None:
    """Predicate: None when there are GPUs and a library that would serve them, else the reason to skip."""
    if any(not isinstance(install.library, Unknown) for install in miopen.installs):
        return has_amd_gpu(gpus)
    return "no MIOpen library was found, see miopen.version"


def _in_root(host: Host, root: RocmRoot, packages: Packages, expect: Expectations, *, alone: bool) -> MiopenInstall:
    if root.layout == "wheel":
        return _in_wheel(host, root, expect)
    names = _USR_LIBRARIES if root.layout == "distribution" else _LIBRARIES
    library = _first(host, [join(root.root, name) for name in names])
    return _install(host, root.root, root.version, library, _package(packages, root.version, alone=alone), expect)


def _in_wheel(host: Host, root: RocmRoot, expect: Expectations) -> MiopenInstall:
    """The rocm-sdk wheels keep MIOpen beside the core: _rocm_sdk_libraries, with a device suffix in some builds."""
    site = dirname(root.root)
    folders = [name for name in host.entries(site).or_none() or () if name.startswith("_rocm_sdk_libraries")]
    library = _first(host, [join(site, name, "lib/libMIOpen.so.1") for name in folders or ["_rocm_sdk_libraries"]])
    base = dirname(dirname(library.value)) if isinstance(library, Known) else root.root
    return _install(host, base, root.version, library, Unknown("absent", "wheel"), expect)


def _in_torch(host: Host, rocm: RocmInstalls, expect: Expectations) -> list[MiopenInstall]:
    """PyTorch wheels bring their own MIOpen; their version names the ROCm release: torch-2.7.0+rocm6.3."""
    found = []
    for site in site_packages(host, expect, rocm.searched):
        names = host.entries(site).or_none() or ()
        if "torch" not in names:
            continue
        library = _first(host, [join(site, "torch/lib", name) for name in ("libMIOpen.so.1", "libMIOpen.so")])
        if isinstance(library, Known):
            release = wheel_version(site, names, "torch").parse(_rocm_of_torch)
            found.append(
                _install(host, join(site, "torch"), release, library, Unknown("absent", "torch wheel"), expect)
            )
    return found


def _rocm_of_torch(version: str) -> str:
    match = re.search(r"\+rocm(\d+\.\d+(?:\.\d+)?)", version)
    if match is None:
        raise ValueError(f"{version} names no ROCm release")
    return match[1]


def _install(
    host: Host, root: str, release: Value[str], library: Value[str], package: Value[str], expect: Expectations
) -> MiopenInstall:
    return MiopenInstall(
        root=root,
        rocm_version=release,
        library=library,
        built_for=library.parse(_built_for),
        api=_ask_library(host, library, expect),
        header=_header(host, root),
        package=package,
        system_db=_system_db(host, root, library),
    )


def _first(host: Host, paths: list[str]) -> Value[str]:
    """The first of these files that exists, as its real path; else why the first could not be found."""
    answers = []
    for path in paths:
        real = host.resolve(path)
        if isinstance(real, Known):
            return Known(real.value, path)
        answers.append(real)
    return next((answer for answer in answers if answer.reason != "absent"), answers[0])


def _built_for(library: str) -> str:
    release = release_number(library)
    if release is None:
        raise ValueError(f"{library[-80:]} ends in no ROCm release")
    return release


def _header(host: Host, root: str) -> Value[str]:
    first: Unknown | None = None
    for name in _HEADERS:
        text = host.read(join(root, name), limit=1 << 16).parse(version_of_header)
        if isinstance(text, Known):
            return text
        first = first or text
    return first or Unknown("absent", root)


def version_of_header(text: str) -> str:
    """MAJOR.MINOR.PATCH of miopen/version.h."""
    fields = dict(re.findall(r"^\s*#\s*define\s+MIOPEN_VERSION_(MAJOR|MINOR|PATCH)\s+(\d{1,6})\b", text, re.MULTILINE))
    if len(fields) != 3:
        raise ValueError("MIOPEN_VERSION_MAJOR, _MINOR and _PATCH are not all there")
    return f"{fields['MAJOR']}.{fields['MINOR']}.{fields['PATCH']}"


def _package(packages: Packages, release: Value[str], *, alone: bool) -> Value[str]:
    """The version of miopen-hip, when it belongs to this installation: 3.3.0.60303-74~22.04 is of 6.3.3."""
    if isinstance(packages.installed, Unknown):
        return packages.installed
    name = table.table().package.name
    text = packages.installed.value.get(name)
    if text is None:
        return Unknown("absent", packages.installed.source, f"{name} is not installed as a package")
    match = re.fullmatch(r"(?:\d+:)?(\d+\.\d+\.\d+)(?:\.(\d{5,6}))?(?:[-+~].*)?", text)
    if match is None:
        return Unknown("failed", packages.installed.source, f"{text[:80]!r} is not understood")
    of = release_number(f".so.0.0.{match[2]}") if match[2] else None
    belongs = alone if of is None else of == release.or_none()
    if not belongs:
        return Unknown("absent", packages.installed.source, f"{name} {text[:40]} is of another installation")
    return Known(match[1], f"{packages.installed.source.split()[0]} {name}")


def _ask_library(host: Host, library: Value[str], expect: Expectations) -> Value[str]:
    if isinstance(library, Unknown):
        return library
    test, source = SelfTest(name=SELFTEST, params=(library.value,)), f"miopenGetVersion of {library.value}"
    document = document_of(host, test, expect, _VersionStep, source=source)
    said: Value[_Version] = step_of(document, lambda step: (step, step.result))
    return said.parse(_stated)


def _stated(result: _Version) -> str:
    return result.version


def _system_db(host: Host, root: str, library: Value[str]) -> SystemDb:
    """The folder beside the library, as the library itself finds it, then the places of older layouts."""
    bases = [dirname(dirname(library.value))] if isinstance(library, Known) else []
    folders = [join(base, name) for base in [*bases, root] for name in table.table().system_db.folders]
    first: Unknown | None = None
    for folder in dict.fromkeys(folders):
        names = host.entries(folder)
        if isinstance(names, Known):
            return SystemDb(path=folder, names=names, kernel_dbs=_kernel_dbs(host, folder, names.value))
        if first is None or first.reason == "absent":
            first = names
    assert first is not None
    return SystemDb(path=folders[0], names=first, kernel_dbs=())


def _kernel_dbs(host: Host, folder: str, names: tuple[str, ...]) -> tuple[KernelDb, ...]:
    smallest = table.table().kernel_db.smallest_bytes

    def _is_sqlite(head: bytes) -> bool:
        return head.startswith(_SQLITE) and len(head) == smallest

    found = [name for name in names if name.endswith(".kdb")][:_KERNEL_DBS]
    return tuple(
        KernelDb(
            name=name,
            is_sqlite=host.read_bytes(join(folder, name), limit=smallest).parse(_is_sqlite),
        )
        for name in found
    )
