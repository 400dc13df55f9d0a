"""MCAP files and ROS 1 bags, by their descriptions."""

import bz2
import struct
import zlib

import zstandard

MAGIC = b"\x89MCAP0\r\n"


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


def pairs(values):
    return text(b"".join(text(key) + text(value) for key, value in values.items()))


def record(op, content):
    return struct.pack("<BQ", op, len(content)) + content


def mcap(schemas, channels, messages, attachments=(), metadata=(), *, chunk=1 << 16, compression="zstd", indexed=True):
    """An MCAP file. `schemas`: (name, encoding, data) with ids from 1; `channels`: (topic, message encoding, schema id)
    with ids from 0; `messages`: (channel, time, data); `attachments`: (name, type, data); `metadata`: (name, values).
    A chunk ends behind the message that makes it longer than `chunk`."""
    heads = [record(3, struct.pack("<H", number) + text(name) + text(encoding) + text(data))
             for number, (name, encoding, data) in enumerate(schemas, 1)]
    heads += [record(4, struct.pack("<HH", number, schema) + text(topic) + text(encoding) + pairs({}))
              for number, (topic, encoding, schema) in enumerate(channels)]
    out = bytearray(MAGIC + record(1, text("") + text("shardfs examples")))
    summary, counts, times = bytearray(b"".join(heads)), [0] * len(channels), [time for _, time, _ in messages]
    records, index, chunks = bytearray(b"".join(heads)), {}, 0

    def close():
        nonlocal records, index, chunks
        stored = {"zstd": zstandard.ZstdCompressor(level=3).compress, "": bytes}[compression](bytes(records))
        inside = [time for entries in index.values() for time, _ in entries]
        start, end = min(inside, default=0), max(inside, default=0)
        begin = len(out)
        out.extend(record(6, struct.pack("<QQQI", start, end, len(records), zlib.crc32(records)) + text(compression)
                          + struct.pack("<Q", len(stored)) + stored))
        length, offsets = len(out) - begin, b""
        for channel, entries in sorted(index.items()):
            offsets += struct.pack("<HQ", channel, len(out))
            body = b"".join(struct.pack("<QQ", *entry) for entry in entries)
            out.extend(record(7, struct.pack("<HI", channel, len(body)) + body))
        summary.extend(record(8, struct.pack("<QQQQ", start, end, begin, length) + text(offsets)
                              + struct.pack("<Q", len(out) - begin - length) + text(compression)
                              + struct.pack("<QQ", len(stored), len(records))))
        records, index, chunks = bytearray(), {}, chunks + 1

    for channel, time, data in messages:
        index.setdefault(channel, []).append((time, len(records)))
        records += record(5, struct.pack("<HIQQ", channel, counts[channel], time, time) + data)
        counts[channel] += 1
        if len(records) > chunk:
            close()
    if records:
        close()
    for name, kind, data in attachments:
        begin = len(out)
        content = struct.pack("<QQ", 1, 1) + text(name) + text(kind) + struct.pack("<Q", len(data)) + data
        out.extend(record(9, content + struct.pack("<I", zlib.crc32(content))))
        summary += record(10, struct.pack("<QQQQQ", begin, len(out) - begin, 1, 1, len(data)) + text(name) + text(kind))
    for name, values in metadata:
        begin = len(out)
        out.extend(record(12, text(name) + pairs(values)))
        summary += record(13, struct.pack("<QQ", begin, len(out) - begin) + text(name))
    summary += record(11, struct.pack("<QHIIIIQQ", len(messages), len(schemas), len(channels), len(attachments),
                                      len(metadata), chunks, min(times, default=0), max(times, default=0))
                      + text(b"".join(struct.pack("<HQ", *pair) for pair in enumerate(counts))))
    out.extend(record(15, struct.pack("<I", 0)))
    start = len(out) if indexed else 0
    if indexed:
        out.extend(summary)
    footer = struct.pack("<BQQQ", 2, 20, start, 0)
    crc = zlib.crc32(bytes(out[start:]) + footer) if indexed else 0
    return bytes(out) + footer + struct.pack("<I", crc) + MAGIC


def header(**fields):
    return b"".join(text(name.encode() + b"=" + value) for name, value in fields.items())


def bag_record(fields, data):
    return text(header(**fields)) + text(data)


def bag(connections, messages, *, chunk=1 << 16, compression="bz2"):
    """A ROS 1 bag. `connections`: (topic, type, definition) with numbers from 0; `messages`: (connection, time, data)."""
    u32 = lambda *values: struct.pack(f"<{len(values)}I", *values)
    when = lambda time: u32(time // 10**9, time % 10**9)
    tops = [bag_record({"op": b"\7", "conn": u32(number), "topic": topic.encode()},
                       header(topic=topic.encode(), type=kind.encode(), md5sum=b"*", message_definition=definition))
            for number, (topic, kind, definition) in enumerate(connections)]
    out, infos, records, index = bytearray(), [], bytearray(b"".join(tops)), {}

    def close():
        nonlocal records, index
        stored = bz2.compress(bytes(records)) if compression == "bz2" else bytes(records)
        begin = 13 + 4096 + len(out)
        out.extend(bag_record({"op": b"\5", "compression": compression.encode(), "size": u32(len(records))}, stored))
        for number, entries in index.items():
            out.extend(bag_record({"op": b"\4", "ver": u32(1), "conn": u32(number), "count": u32(len(entries))},
                                  b"".join(when(time) + u32(offset) for time, offset in entries)))
        times = [time for entries in index.values() for time, _ in entries]
        infos.append(bag_record({"op": b"\6", "ver": u32(1), "chunk_pos": struct.pack("<Q", begin),
                                 "start_time": when(min(times)), "end_time": when(max(times)), "count": u32(len(index))},
                                b"".join(u32(number, len(entries)) for number, entries in index.items())))
        records, index = bytearray(), {}

    for number, time, data in messages:
        index.setdefault(number, []).append((time, len(records)))
        records += bag_record({"op": b"\2", "conn": u32(number), "time": when(time)}, data)
        if len(records) > chunk:
            close()
    if index:
        close()
    fields = {"op": b"\3", "index_pos": struct.pack("<Q", 13 + 4096 + len(out)), "conn_count": u32(len(connections)),
              "chunk_count": u32(len(infos))}
    top = text(header(**fields))
    top += text(b" " * (4096 - len(top) - 4))
    return b"#ROSBAG V2.0\n" + top + bytes(out) + b"".join(tops) + b"".join(infos)
