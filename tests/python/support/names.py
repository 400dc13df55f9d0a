"""From stored names to paths: an independent copy of the rules, for comparing.

A path is a list of `bytes` parts below the root of a container. Stored names
are bytes too; nothing here assumes that they are UTF-8.
"""

import xxhash

SUFFIXES = (b".npy", b".json", b".jsonl", b".txt", b".bin", b".png", b".jpg")
RESERVED = (b".raw", b".shardfs")


def _pieces(part: bytes):
    """The part as (unescaped piece) units: whole characters or single bad bytes."""
    i = 0
    while i < len(part):
        for width in (1, 2, 3, 4):
            piece = part[i:i + width]
            try:
                piece.decode("utf-8")
            except UnicodeDecodeError:
                continue
            if len(piece) == width:
                yield piece, True
                i += width
                break
        else:
            yield part[i:i + 1], False
            i += 1


def _escape(byte: int) -> bytes:
    return b"%%%02X" % byte


def units(part: bytes, slash: bool = False):
    """Escaped units of one part; none of them may be cut in two."""
    if part == b"":
        return [b"%empty"]
    if part in (b".", b".."):
        return [b"%2E"] * len(part)
    out = []
    for piece, valid in _pieces(part):
        byte = piece[0]
        if not valid or (len(piece) == 1 and (byte < 0x20 or byte in b"%\x7f/")):
            out.append(_escape(byte))
        else:
            out.append(piece)
    return out


def _fit(part: bytes, escaped: list, suffix: bytes) -> bytes:
    whole = b"".join(escaped) + suffix
    if len(whole) <= 255:
        return whole
    tail = b"%~" + b"%016x" % xxhash.xxh64_intdigest(part, seed=0) + suffix
    kept, room = b"", 255 - len(tail)
    for unit in escaped:
        if len(kept) + len(unit) > room:
            break
        kept += unit
    return kept + tail


def file_part(part: bytes, suffix: bytes) -> bytes:
    return _fit(part, units(part), suffix)


def dir_part(part: bytes, reserved=RESERVED, suffix: bytes = b"") -> bytes:
    escaped = units(part)
    if part in reserved:
        escaped[0] = b"".join(_escape(b) for b in escaped[0][:1]) + escaped[0][1:]
    elif part.endswith(SUFFIXES):
        # The last dot is a unit of its own.
        at = len(escaped) - 1 - escaped[::-1].index(b".")
        escaped[at] = b"%2E"
    return _fit(part, escaped, suffix)


def path(name, suffix, *, images_reserved=False, keep_first=False, number=0) -> str:
    """Path of a stored item whose name is split at `/`.

    `images_reserved`: a first directory part `images` is escaped (WShard).
    `number`: 2, 3, ... for further items of an equal name.
    """
    if isinstance(name, str):
        name = name.encode("utf-8", "surrogateescape")
    *dirs, last = name.split(b"/")
    out = []
    for i, part in enumerate(dirs):
        reserved = RESERVED + ((b"images",) if images_reserved and i == 0 else ())
        out.append(dir_part(part, reserved))
    extra = b"%%_%d" % number if number else b""
    out.append(file_part(last, extra + suffix.encode()))
    return b"/".join(out).decode("utf-8", "surrogateescape")
