"""Does a container's header tell the truth about its length?

libsndfile shortens a WAV whose data is cut off, and stops at the length a FLAC header states, both
without a word. The few bytes that decide are read here: headers, and the last frame or page.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

# How much of a file's end is searched for its last frame or page.
_TAIL_BYTES = 1 << 17
_UNKNOWN_SIZES = (0xFFFFFFFF, 0xFFFFFFFE, 0x7FFFFFFF, 0x80000000)


def header_problem(path: Path, container: str) -> tuple[str, str] | None:
    """``(kind, message)`` where the header is contradicted by the file, else None.

    Args:
        path: an audio file that libsndfile can open.
        container: its format as libsndfile names it; formats other than WAV, FLAC and OGG pass.
    """
    check = {"WAV": _wav, "WAVEX": _wav, "FLAC": _flac, "OGG": _ogg}.get(container)
    if check is None:
        return None
    try:
        with path.open("rb") as file:
            return check(file, path.stat().st_size)
    except (OSError, struct.error, IndexError):
        # Too short or too odd for these rules; decoding judges it.
        return None


def _wav(file: BinaryIO, size: int) -> tuple[str, str] | None:
    """Compare the data chunk's size with the bytes that follow it."""
    riff, _, wave = struct.unpack("<4sI4s", file.read(12))
    if riff != b"RIFF" or wave != b"WAVE":
        return None
    while len(head := file.read(8)) == 8:
        name, length = struct.unpack("<4sI", head)
        if name == b"data":
            return _wav_data(file, length, size - file.tell())
        file.seek(length + length % 2, 1)
    return None


def _wav_data(file: BinaryIO, length: int, present: int) -> tuple[str, str] | None:
    if length > present:
        if length in _UNKNOWN_SIZES:
            return None
        return (
            "truncated",
            f"the WAV header promises {length} bytes of samples, the file holds {present}",
        )
    rest = present - length - length % 2
    if rest <= 0:
        return None
    # Whatever follows the samples must be chunks: a name in printable ASCII and a size that fits.
    file.seek(length + length % 2, 1)
    head = file.read(8)
    if len(head) < 8:
        return None
    name, following = struct.unpack("<4sI", head)
    if all(32 <= byte < 127 for byte in name) and following <= rest - 8 + 1:
        return None
    if not any(head) and not any(file.read(min(rest, 4096))):
        return None
    return (
        "wrong-header",
        f"the WAV header states {length} bytes of samples, but {present} bytes follow it and the "
        "rest is no chunk; the end of the recording would be ignored",
    )


def _flac(file: BinaryIO, size: int) -> tuple[str, str] | None:
    """Compare the stated number of samples with the position of the last frame."""
    if file.read(4) != b"fLaC":
        return None
    file.read(4)
    info = file.read(34)
    fixed_block = int.from_bytes(info[0:2], "big")
    stated = int.from_bytes(info[13:18], "big") & ((1 << 36) - 1)
    if stated == 0:
        return None
    start = max(0, size - _TAIL_BYTES)
    file.seek(start)
    end = _last_flac_frame_end(file.read(), fixed_block)
    if end is None or end == stated:
        return None
    if end < stated:
        return (
            "truncated",
            f"the FLAC header promises {stated} samples, the last frame ends at {end}",
        )
    return (
        "wrong-header",
        f"the FLAC header states {stated} samples, but frames go on to {end}; the end of the "
        "recording would be ignored",
    )


def _last_flac_frame_end(tail: bytes, fixed_block: int) -> int | None:
    """Number of the sample behind the last whole frame header in ``tail``, or None."""
    position = len(tail)
    while (position := tail.rfind(b"\xff", 0, position)) >= 0:
        if position + 1 < len(tail) and tail[position + 1] in (0xF8, 0xF9):
            end = _flac_frame_end(tail[position : position + 16], fixed_block)
            if end is not None:
                return end
    return None


def _flac_frame_end(head: bytes, fixed_block: int) -> int | None:
    """Last sample + 1 of the frame whose header starts ``head``; None where that is no header.

    Layout: FLAC format specification (RFC 9639), section 9.1.
    """
    variable = head[1] & 1
    block_code, rate_code = head[2] >> 4, head[2] & 15
    if block_code == 0 or rate_code == 15 or head[3] >> 4 > 10 or head[3] & 1:
        return None
    number, used = _coded_number(head[4:])
    if used == 0:
        return None
    at = 4 + used
    if block_code == 6:
        block, at = head[at] + 1, at + 1
    elif block_code == 7:
        block, at = int.from_bytes(head[at : at + 2], "big") + 1, at + 2
    else:
        block = 192 if block_code == 1 else 576 << (block_code - 2) if block_code <= 5 else 0
        block = block or 256 << (block_code - 8)
    at += {12: 1, 13: 2, 14: 2}.get(rate_code, 0)
    if _crc8(head[:at]) != head[at]:
        return None
    return (number if variable else number * fixed_block) + block


def _coded_number(data: bytes) -> tuple[int, int]:
    """The number coded like UTF-8 at the start of ``data``, and its bytes (0: not one)."""
    first = data[0]
    if first < 0x80:
        return first, 1
    extra = next((n for n in range(1, 7) if not first & (0x40 >> n)), 0)
    if first < 0xC0 or extra == 0:
        return 0, 0
    value = first & (0x3F >> extra)
    for byte in data[1 : extra + 1]:
        if byte & 0xC0 != 0x80:
            return 0, 0
        value = value << 6 | byte & 0x3F
    return value, extra + 1


def _crc8(data: bytes) -> int:
    """CRC-8 with polynomial x^8 + x^2 + x + 1, as FLAC frame headers carry it."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x07) & 0xFF if crc & 0x80 else crc << 1
    return crc


def _ogg(file: BinaryIO, size: int) -> tuple[str, str] | None:
    """The last page of a whole stream says that it is the last."""
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read()
    page = tail.rfind(b"OggS")
    if page < 0 or page + 5 >= len(tail) or not tail[page + 5] & 0x04:
        return "truncated", "the OGG stream has no end page; the end of the recording is missing"
    return None
