"""PCI configuration space as the hardware holds it: headers and capability lists (PCI Express Base 5.0, chapter 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SPEED_CODE = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
PORT_TYPES = {"endpoint": 0, "root-port": 4, "upstream": 5, "downstream": 6}

_PM, _EXPRESS, _MSI, _BRIDGE_SSID = 0x50, 0x64, 0xA0, 0xC0
_AER, _ACS, _REBAR = 0x150, 0x2A0, 0x200


@dataclass(frozen=True)
class Link:
    """A PCIe link seen from one port: lanes and GT/s, now and at most. No speed: the port has no link registers."""

    width: int
    gts: float
    max_width: int
    max_gts: float


@dataclass(frozen=True)
class Bar:
    """One base address register; `index` is its number."""

    index: int
    address: int
    size: int
    wide: bool  # 64 bit
    prefetchable: bool


@dataclass(frozen=True)
class Window:
    """The buses behind a bridge and the prefetchable memory that it forwards."""

    primary: int
    secondary: int
    subordinate: int
    start: int
    end: int  # last address; below start: none


def config_space(
    *,
    vendor: int,
    device: int,
    class_code: int,
    revision: int,
    subsystem: tuple[int, int],
    port_type: str | None,
    port_number: int,
    link: Link | None,
    bars: Sequence[Bar] = (),
    window: Window | None = None,
) -> bytes:
    """The 4096 bytes of a PCIe function, or the 256 of a conventional one (`port_type` None).

    Type 1 header when there is a window, else type 0.
    """
    space = bytearray(4096 if port_type else 256)
    _put(space, 0x00, vendor, 2)
    _put(space, 0x02, device, 2)
    _put(space, 0x04, 0x0407 if port_type else 0x0000, 2)  # I/O, memory, bus master; INTx off
    _put(space, 0x06, 0x0010 if port_type else 0x0000, 2)  # there is a capability list
    _put(space, 0x08, revision, 1)
    _put(space, 0x09, class_code, 3)
    _put(space, 0x0C, 0x10 if port_type else 0, 1)
    if window:
        _bridge_header(space, window)
    else:
        _endpoint_header(space, bars, subsystem)
    if port_type:
        _capabilities(space, port_type, port_number, link, subsystem if window else None)
        _extended(space, port_type, bars)
    return bytes(space)


def _put(space: bytearray, at: int, value: int, size: int) -> None:
    space[at : at + size] = value.to_bytes(size, "little")


def _endpoint_header(space: bytearray, bars: Sequence[Bar], subsystem: tuple[int, int]) -> None:
    for bar in bars:
        low = bar.address & 0xFFFFFFF0 | (0x4 if bar.wide else 0) | (0x8 if bar.prefetchable else 0)
        _put(space, 0x10 + 4 * bar.index, low, 4)
        if bar.wide:
            _put(space, 0x14 + 4 * bar.index, bar.address >> 32, 4)
    _put(space, 0x2C, subsystem[0], 2)
    _put(space, 0x2E, subsystem[1], 2)
    space[0x3C], space[0x3D] = 0xFF, 0x01


def _bridge_header(space: bytearray, window: Window) -> None:
    space[0x0E] = 0x01
    space[0x18:0x1B] = bytes((window.primary, window.secondary, window.subordinate))
    _put(space, 0x1C, 0x01F1, 2)  # no I/O window
    _put(space, 0x20, 0x0000FFF0, 4)  # no 32-bit window
    start, end = (window.start, window.end) if window.end > window.start else (0xFFF00000, 0)
    _put(space, 0x24, start >> 16 & 0xFFF0 | 1, 2)
    _put(space, 0x26, end >> 16 & 0xFFF0 | 1, 2)
    _put(space, 0x28, start >> 32, 4)
    _put(space, 0x2C, end >> 32, 4)
    space[0x3C], space[0x3D] = 0xFF, 0x01
    _put(space, 0x3E, 0x0002, 2)  # SERR


def _capabilities(
    space: bytearray, port_type: str, port_number: int, link: Link | None, bridge_ssid: tuple[int, int] | None
) -> None:
    space[0x34] = _PM
    space[_PM : _PM + 4] = bytes((0x01, _EXPRESS, 0x03, 0x48))  # power management 3, PME from D0 and D3
    code = PORT_TYPES[port_type]
    slot = 0x100 if port_type in ("root-port", "downstream") else 0
    space[_EXPRESS], space[_EXPRESS + 1] = 0x10, _MSI
    _put(space, _EXPRESS + 0x02, 2 | code << 4 | slot, 2)
    _put(space, _EXPRESS + 0x04, 0x00008022 if port_type != "endpoint" else 0x10008FA2, 4)  # 512 bytes, ext. tags, FLR
    _put(space, _EXPRESS + 0x08, 0x295F, 2)  # errors reported, 512 bytes, ext. tags
    if link:
        top, now = _SPEED_CODE.get(link.max_gts, 0), _SPEED_CODE.get(link.gts, 0)
        _put(space, _EXPRESS + 0x0C, top | link.max_width << 4 | 0x00400000 | port_number << 24, 4)
        _put(space, _EXPRESS + 0x10, 0x0040, 2)
        active = 0x2000 if slot and now else 0
        _put(space, _EXPRESS + 0x12, now | link.width << 4 | 0x1000 | active, 2)
        _put(space, _EXPRESS + 0x2C, (1 << top + 1) - 2, 4)  # every speed up to the highest
        _put(space, _EXPRESS + 0x30, top, 2)
    if slot:
        _put(space, _EXPRESS + 0x1A, 0x0040, 2)  # a card is in the slot
    _put(space, _EXPRESS + 0x24, 0x000003C0, 4)  # AtomicOp routing and completion
    space[_MSI], space[_MSI + 1] = 0x05, _BRIDGE_SSID if bridge_ssid else 0
    _put(space, _MSI + 2, 0x0081, 2)
    if bridge_ssid:
        space[_BRIDGE_SSID] = 0x0D
        _put(space, _BRIDGE_SSID + 4, bridge_ssid[0], 2)
        _put(space, _BRIDGE_SSID + 6, bridge_ssid[1], 2)


def _extended(space: bytearray, port_type: str, bars: Sequence[Bar]) -> None:
    _put(space, 0x100, 0x0001000B | _AER << 20, 4)  # vendor specific, as AMD's functions begin
    _put(space, 0x104, 0x01010001, 4)
    follow = _ACS if port_type in ("root-port", "downstream") else _REBAR if bars and bars[0].size > 1 << 30 else 0
    _put(space, _AER, 0x00020001 | follow << 20, 4)
    _put(space, _AER + 0x0C, 0x00462030, 4)  # severity
    _put(space, _AER + 0x14, 0x0000E000, 4)  # correctable mask
    if follow == _ACS:
        _put(space, _ACS, 0x0001000D, 4)
        _put(space, _ACS + 4, 0x005F, 2)
    elif follow == _REBAR:
        exponent = (bars[0].size >> 20).bit_length() - 1
        _put(space, _REBAR, 0x00010015, 4)
        _put(space, _REBAR + 4, (1 << exponent + 5) - (1 << 12), 4) if exponent < 27 else None
        _put(space, _REBAR + 8, 0 | 1 << 5 | exponent << 8, 4)
