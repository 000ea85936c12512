"""ROCm installations: every layout since 5.x, side by side, Python wheels included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import dirname, join, normpath

from msgspec import Struct

from amdcheck.facts.gpus import Gpus
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Subject
from amdcheck.model.value import Known, Unknown, Value

OPT = "/opt"
# Names below /opt that may be an installation: rocm, rocm-6.3.3.
_NAME = re.compile(r"rocm(-\d[\w.+~-]*)?")
# Names below /opt/rocm from 7.14 on: core-7.14, and the link core to one of them.
_CORE = re.compile(r"core(-\d[\w.+~-]*)?")
_LIBRARY_FOLDERS = ("lib", "lib64")
_USR_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu")
# Interpreters that container images of the field bring, looked at when no --python names one.
_PREFIXES = ("/usr/local", "/opt/venv", "/opt/conda", "/opt/python")
_LINKS_LIMIT = 40  # that the kernel follows
_HIP_MAJORS = range(5, 9)  # libamdhip64.so.5 came with ROCm 5, .so.7 with ROCm 7 and 10
_VERSION = re.compile(r"\d{1,3}(?:\.\d{1,5}){1,2}(?:[a-z]+\d*)?")


class RocmRoot(Struct, frozen=True, kw_only=True):
    """One installation; `root` has all links followed, `links` are the other names it was found under."""

    root: str
    links: tuple[str, ...]
    version: Value[str]  # 6.3.3, 7.14.0
    build: str | None  # what follows the version in its file: 74 of 6.3.3-74
    layout: str  # legacy, core, wheel, distribution
    found_by: str  # the file or package that named it

    @property
    def subject(self) -> Subject:
        return Subject(kind="path", id=self.root)


class BrokenRoot(Struct, frozen=True, kw_only=True):
    """A name that should lead to an installation and does not: a link to nothing, or a --rocm that is not there."""

    path: str
    leads: tuple[str, ...]  # from link to link; the last does not exist. None of them: no link
    why: Unknown

    @property
    def subject(self) -> Subject:
        return Subject(kind="path", id=self.path)


@fact
class RocmInstalls(Struct, frozen=True, kw_only=True):
    """`searched` is the listing of /opt; unknown there means that an installation may have been missed."""

    searched: Value[tuple[str, ...]]
    roots: tuple[RocmRoot, ...]
    broken: tuple[BrokenRoot, ...]

    @classmethod
    def read(cls, host: Host, expect: Expectations) -> RocmInstalls:
        searched = host.entries(OPT)
        if expect.rocm_root is not None:
            found = list(_asked_for(host, normpath(expect.rocm_root)))
        else:
            found = [*_below_opt(host, searched), *_of_the_distribution(host), *_wheels(host, expect, searched)]
        return cls(
            searched=searched,
            roots=_merged(host, [item for item in found if isinstance(item, _Candidate)]),
            broken=tuple(item for item in found if isinstance(item, BrokenRoot)),
        )


def has_rocm(rocm: RocmInstalls, gpus: Gpus) -> str | None:
    """Predicate: None when there is an installation to judge, or one may have been missed on a host with GPUs; else
    the reason to skip."""
    if rocm.roots or rocm.broken:
        return None
    if isinstance(rocm.searched, Unknown) and rocm.searched.reason != "absent" and gpus.devices:
        return None
    return "no ROCm installation was found on this host; a container brings its own"


class _Candidate(Struct, frozen=True, kw_only=True):
    """A place that looks like an installation: its real path, the name it was found under, and its layout."""

    root: str
    name: str
    layout: str
    version: Value[str] | None = None  # where the place is not asked for it


def _asked_for(host: Host, path: str) -> Iterator[_Candidate | BrokenRoot]:
    """What --rocm names: an installation, or the folder of a newer layout that holds some."""
    found = list(_at(host, path))
    if found:
        yield from found
        return
    real = host.resolve(path)
    if isinstance(real, Unknown):
        yield BrokenRoot(path=path, leads=_leads(host, path), why=real)
    else:
        yield _Candidate(root=real.value, name=path, layout="legacy")


def _below_opt(host: Host, listing: Value[tuple[str, ...]]) -> Iterator[_Candidate | BrokenRoot]:
    names = listing.or_none()
    if names is None:  # /opt cannot be listed: the usual name may still answer
        names = ("rocm",) if isinstance(host.resolve(join(OPT, "rocm")), Known) else ()
    for name in names:
        if _NAME.fullmatch(name):
            yield from _at(host, join(OPT, name))


def _at(host: Host, path: str) -> Iterator[_Candidate | BrokenRoot]:
    """The installations at one name: itself, or the core-X.Y folders below it."""
    real = host.resolve(path)
    if isinstance(real, Unknown):
        yield from _unreached(host, path, real)
        return
    names = host.entries(real.value)
    if isinstance(names, Unknown):
        yield from _unreached(host, real.value, names)
        return
    cores = [name for name in names.value if _CORE.fullmatch(name)]
    for name in cores:
        yield from _core(host, join(path, name), path, only=len(cores) == 1)
    if not cores and {".info", "bin", "lib", "lib64"} & set(names.value):
        yield _Candidate(root=real.value, name=path, layout=_layout(real.value))


def _unreached(host: Host, path: str, why: Unknown) -> Iterator[_Candidate | BrokenRoot]:
    """A name that leads nowhere is a broken link; one that may not be looked into is an installation all the same."""
    if why.reason in ("denied", "failed", "timeout"):
        yield _Candidate(root=path, name=path, layout=_layout(path), version=why)
    elif leads := _leads(host, path):
        yield BrokenRoot(path=path, leads=leads, why=why)


def _leads(host: Host, path: str) -> tuple[str, ...]:
    """Where a link leads, from link to link."""
    found: list[str] = []
    while len(found) < _LINKS_LIMIT and isinstance(link := host.link(path), Known):
        path = normpath(join(dirname(path), link.value))
        found.append(path)
    return tuple(found)


def _core(host: Host, path: str, above: str, *, only: bool) -> Iterator[_Candidate | BrokenRoot]:
    """A core folder of 7.14 and later; the folder above is a name of the one that its links lead into."""
    real = host.resolve(path)
    if isinstance(real, Unknown):
        yield from _unreached(host, path, real)
        return
    yield _Candidate(root=real.value, name=path, layout="core")
    leads_in = host.resolve(join(above, "bin")).or_none() or ""
    if only or leads_in.startswith(f"{real.value}/"):
        yield _Candidate(root=real.value, name=above, layout="core")


def _layout(root: str) -> str:
    return "core" if re.search(r"/core(-[\w.+~-]+)?$", root) else "legacy"


def _of_the_distribution(host: Host) -> Iterator[_Candidate]:
    """ROCm packaged by Debian or Fedora lies in /usr: the HIP runtime and a tool of it.

    rocm-smi alone is no installation, nor is the HIP library alone: communication libraries depend on it.
    """
    if not any(isinstance(host.resolve(f"/usr/bin/{tool}"), Known) for tool in ("rocminfo", "hipcc")):
        return
    for folder in _USR_LIBRARIES:
        for major in _HIP_MAJORS:
            library = host.resolve(f"{folder}/libamdhip64.so.{major}")
            if isinstance(library, Known):
                yield _Candidate(
                    root="/usr", name=library.value, layout="distribution", version=library.parse(_version_of_hip)
                )
                return


def _version_of_hip(library: str) -> str:
    """libamdhip64.so.5.2.21153 came with ROCm 5.2; from HIP 7.15 on the numbers went apart (ROCm 10.0)."""
    match = re.search(r"\.so\.(\d+)\.(\d+)", library)
    if match is None:
        raise ValueError(f"{library} names no version")
    major, minor = int(match[1]), int(match[2])
    if (major, minor) >= (7, 15):
        raise ValueError(f"HIP {major}.{minor} does not tell the ROCm release")
    return f"{major}.{minor}"


def _wheels(host: Host, expect: Expectations, opt: Value[tuple[str, ...]]) -> Iterator[_Candidate]:
    """The rocm-sdk-core wheel in a judged interpreter's packages."""
    for site in site_packages(host, expect, opt):
        names = host.entries(site).or_none() or ()
        if "_rocm_sdk_core" not in names:
            continue
        root = host.resolve(join(site, "_rocm_sdk_core"))
        if isinstance(root, Known):
            yield _Candidate(
                root=root.value,
                name=join(site, "_rocm_sdk_core"),
                layout="wheel",
                version=wheel_version(site, names, "rocm_sdk_core"),
            )


def site_packages(host: Host, expect: Expectations, opt: Value[tuple[str, ...]]) -> tuple[str, ...]:
    """The package folders of the judged interpreter, or of those that images of the field bring."""
    if expect.python is not None:
        prefixes: tuple[str, ...] = (dirname(dirname(normpath(expect.python))),)
    else:
        there = opt.or_none() or ()
        prefixes = tuple(p for p in _PREFIXES if not p.startswith("/opt/") or p.rpartition("/")[2] in there)
    found = []
    for prefix in prefixes:
        for library in _LIBRARY_FOLDERS:
            for name in host.entries(join(prefix, library)).or_none() or ():
                if re.fullmatch(r"python3(\.\d+)?", name):
                    found += [join(prefix, library, name, kind) for kind in ("site-packages", "dist-packages")]
    return tuple(found)


def wheel_version(site: str, names: tuple[str, ...], package: str) -> Value[str]:
    """A wheel's version from the name of its metadata folder: rocm_sdk_core-7.9.0.dist-info."""
    for name in names:
        match = re.fullmatch(rf"{re.escape(package)}-([\w.+!]+)\.dist-info", name)
        if match:
            return Known(match[1], join(site, name))
    return Unknown("absent", join(site, f"{package}-*.dist-info"))


def _merged(host: Host, candidates: list[_Candidate]) -> tuple[RocmRoot, ...]:
    """One record for each real place, with all its names."""
    places: dict[str, list[_Candidate]] = {}
    for candidate in candidates:
        places.setdefault(candidate.root, []).append(candidate)
    return tuple(_root(host, root, found) for root, found in sorted(places.items()))


def _root(host: Host, root: str, found: list[_Candidate]) -> RocmRoot:
    version, build = _version(host, root, found[0])
    names = sorted({candidate.name for candidate in found} - {root})
    return RocmRoot(
        root=root,
        links=tuple(name for name in names if found[0].layout != "distribution"),
        version=version,
        build=build,
        layout=found[0].layout,
        found_by=found[0].name,
    )


def _version(host: Host, root: str, candidate: _Candidate) -> tuple[Value[str], str | None]:
    """The version and its build number, from the files that say it in so many words; never from the folder's name."""
    if candidate.version is not None:
        return candidate.version, None
    first: Unknown | None = None
    for name in (".info/version-rocm", ".info/version", ".info/version-dev"):
        text = host.read(join(root, name), limit=4096)
        known = text.parse(_split_version)
        if isinstance(known, Known):
            return Known(known.value[0], known.source), known.value[1]
        if first is None or first.reason == "absent":
            first = known
    by_name = _version_by_soname(host, root)
    if by_name is not None:
        return by_name, None
    return first or Unknown("absent", join(root, ".info/version")), None


def _split_version(text: str) -> tuple[str, str | None]:
    """6.3.3-74 is version 6.3.3, build 74."""
    line = text.strip().partition("\n")[0].strip()
    version, _, build = line.partition("-")
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{line[:80]!r} is not a version")
    return version, build or None


def _version_by_soname(host: Host, root: str) -> Value[str] | None:
    """librocm-core.so.1.0.60303 and libhsa-runtime64.so.1.14.60303 end in the release they belong to."""
    for library in ("librocm-core.so.1", "libhsa-runtime64.so.1"):
        for folder in _LIBRARY_FOLDERS:
            path = host.resolve(join(root, folder, library)).or_none()
            version = release_number(path) if path else None
            if path and version:
                return Known(version, path)
    return None


def release_number(library: str) -> str | None:
    """The release at the end of a library's name: 6.3.3 of libMIOpen.so.1.0.60303, 7.14.0 of .71400."""
    match = re.search(r"\.so\.\d+\.\d+\.(\d{5,6})$", library)
    if match is None:
        return None
    number = int(match[1])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
