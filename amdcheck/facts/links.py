"""The PCIe links on the way from a GPU to its root port.

A PCIe link joins two ports that both report it: a root port or the downstream port of a switch above, a device or the
upstream port of a switch below. Between the two ports of one switch there is no link. So the devices on the way, from
the GPU up, pair off: (GPU, port), (switch, port), ... and each pair is one link.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from amdcheck.facts.pci import PciDevice, PciTree
from amdcheck.knowledge.gpus import is_card_bridge
from amdcheck.model.value import Known, Unknown, Value


class Link(Struct, frozen=True, kw_only=True):
    """One link. `upper` is None for a device without a bridge above it (a guest), which then speaks alone."""

    lower: str
    upper: str | None
    width: Value[int]  # lanes now, as the end says that sees less
    silent: Unknown | None  # an end that does not say its width now: it may see less
    ends: tuple[Value[int], ...]  # lanes that each end can do
    speed: float | None  # GT/s now
    full_speed: float | None
    on_card: bool  # inside the card or package: no slot

    @property
    def name(self) -> str:
        return f"{self.lower} - {self.upper}" if self.upper else self.lower

    @property
    def full(self) -> int | None:
        """The lanes that the link has when nothing is wrong: those of its narrower end.

        Where one end does not say, it may be the narrower one, unless the link uses all lanes of the other.
        """
        known = [end.value for end in self.ends if isinstance(end, Known)]
        full = min(known, default=None)
        return full if len(known) == len(self.ends) or full == self.width.or_none() else None

    @property
    def limits(self) -> str:
        return "ends can do " + " and ".join(f"x{e.value}" if isinstance(e, Known) else "unknown" for e in self.ends)

    @property
    def is_slow(self) -> bool:
        """It runs below its speed, as links do that save power."""
        return self.speed is not None and self.full_speed is not None and self.speed < self.full_speed

    @property
    def why_unread(self) -> Unknown:
        """Why its width or what it could be is not known."""
        values = (self.silent, *self.ends)
        return next((value for value in values if isinstance(value, Unknown)), Unknown("failed", self.name))


def links_above(device: PciDevice, pci: PciTree) -> list[Link]:
    """The links from this device up to the root port, nearest first."""
    way = [device, *(pci.devices[bdf] for bdf in device.parents if bdf in pci.devices)]
    pairs = [way[i : i + 2] for i in range(0, len(way), 2)]
    return [_link(pair, on_card=i == 0 and _is_on_card(way)) for i, pair in enumerate(pairs)]


def _is_on_card(way: Sequence[PciDevice]) -> bool:
    """Is the nearest switch part of the card? Its upstream port, two above the GPU, says so; a bridge of AMD's
    graphics vendor right above the GPU does too."""
    return len(way) > 2 and any(
        is_card_bridge(bridge.vendor.or_none() or "", bridge.device.or_none() or "") for bridge in way[1:3]
    )


def _link(pair: Sequence[PciDevice], *, on_card: bool) -> Link:
    """Both ends report the link. Where they differ in what it is now, the one that sees less is believed."""
    widths = [port.current_link_width for port in pair]
    known = [width for width in widths if isinstance(width, Known)]
    speeds = [speed for port in pair if (speed := port.current_link_speed.or_none()) is not None]
    limits = [speed for port in pair if (speed := port.max_link_speed.or_none()) is not None]
    return Link(
        lower=pair[0].bdf,
        upper=pair[1].bdf if len(pair) == 2 else None,
        width=min(known, key=lambda width: width.value) if known else widths[0],
        silent=next((width for width in widths if isinstance(width, Unknown)), None),
        ends=tuple(port.max_link_width for port in pair),
        speed=min(speeds, default=None),
        full_speed=min(limits, default=None),
        on_card=on_card,
    )
