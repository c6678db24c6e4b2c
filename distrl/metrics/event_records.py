"""The framing of records in TensorBoard's event files (TFRecord)."""

from __future__ import annotations

import struct

_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), bits reversed
_MASK_DELTA = 0xA282EAD8


def framed(record: bytes) -> bytes:
    """The record as it stands in a file.

    uint64 length, uint32 masked CRC-32C of the length, the record, uint32 masked
    CRC-32C of the record; all little-endian.
    """
    length = struct.pack("<Q", len(record))
    return length + _masked_crc(length) + record + _masked_crc(record)


def crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes (about 0.1 µs a byte)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked_crc(data: bytes) -> bytes:
    """Rotated and shifted, so that the CRC of data with a CRC in it is of use."""
    crc = crc32c(data)
    masked = ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
    return struct.pack("<I", masked)


def _of_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(_of_byte(value) for value in range(256))
