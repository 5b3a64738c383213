"""The last text of an output, whatever bytes it is made of."""

from __future__ import annotations

TAIL = 8192  # bytes of UTF-8
LOOKBACK = 3  # a UTF-8 character may begin this many bytes before a cut


def decode_tail(data: bytes, limit: int = TAIL) -> tuple[str, bool]:
    """Return the end of ``data`` as storable text, and whether that text is other than what was printed.

    Arguments:
        data: the end of the output; at least ``limit + LOOKBACK`` bytes of it, or all.
        limit: the most the text may take as UTF-8, in bytes.

    What is no UTF-8 becomes U+FFFD, and so does NUL, which PostgreSQL cannot store. A character that the
    limit cuts in two is left out whole; that alone does not count as altered.
    """
    start = _boundary(data, max(0, len(data) - limit))
    kept = data[start:]
    text = kept.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    stored = text.encode()
    altered = stored != kept
    if len(stored) > limit:  # three bytes for each that had to be replaced
        text = stored[_boundary(stored, len(stored) - limit) :].decode()
    return text, altered


def _boundary(data: bytes, cut: int) -> int:
    """Return ``cut``, or the end of the character that begins before it and reaches over it."""
    for start in range(max(0, cut - LOOKBACK), cut):
        length = _length(data[start])
        if start + length > cut and _is_character(data[start : start + length]):
            return start + length
    return cut


def _length(lead: int) -> int:
    """Return how many bytes a character takes that begins with ``lead``."""
    return 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False
