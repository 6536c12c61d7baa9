"""The weight of an image in tokens, from its width and height."""

from __future__ import annotations

import base64
import binascii
import struct

LEAST = 1_600  # the older models' cap of 1,568, rounded up
MOST = 4_784  # PROTOCOL section 4: the cap of current Claude models
LONG_EDGE = 2_576  # pixels; larger images are scaled down before they are read
TILE = 28  # pixels; one token stands for a square of this side


def tokens_of(data: str) -> int:
    """Tokens of a base64 image: ⌈w/28⌉·⌈h/28⌉ after scaling down, 1,600 to 4,784; 1,600 when its size is unknown.

    Source: PROTOCOL section 4. The lower bound is there because older models and gateways count a flat weight.
    """
    width, height = _image_size(data)
    scale = min(1.0, LONG_EDGE / max(width, height, 1))
    tiles = _tiles(width * scale) * _tiles(height * scale)
    return max(LEAST, min(tiles, MOST))


def _tiles(pixels: float) -> int:
    return int(-(-pixels // TILE))


def _image_size(data: str) -> tuple[int, int]:
    """(width, height) in pixels, read from the first 64 KB of a PNG, GIF, WebP or JPEG; (0, 0): unknown."""
    try:
        head = base64.b64decode(data[:87_380])
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return _pair(">II", head, 16)
        if head.startswith(b"GIF8"):
            return _pair("<HH", head, 6)
        if head[8:15] == b"WEBPVP8":
            return _webp_size(head)
        if head.startswith(b"\xff\xd8"):
            return _jpeg_size(head)
    except (binascii.Error, ValueError, struct.error, IndexError):
        pass  # cut short or no image at all
    return 0, 0


def _pair(form: str, head: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(form, head, at)
    return int(first), int(second)


def _webp_size(head: bytes) -> tuple[int, int]:
    if head[15:16] == b"X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if head[15:16] == b"L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = _pair("<HH", head, 26)
    return width & 0x3FFF, height & 0x3FFF


def _jpeg_size(head: bytes) -> tuple[int, int]:
    at = 2
    while head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:  # a frame header
            height, width = _pair(">HH", head, at + 5)
            return width, height
        at += 2 + _pair(">HH", head, at + 2)[0]
    return 0, 0
