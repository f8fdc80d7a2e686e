"""Pictures as mean brightness of cells, and how far two are apart."""
import struct
import zlib

CELL = 5  # pixels of a side of a cell
# Of mean brightness, 0 to 255. Other versions of Chromium and other fonts move edges by a few pixels.
MEAN_MOST, CELL_MOST, CELLS_MOST = 6, 90, .02


def read_png(data):
    """Rows of brightness; 8 bits per sample, RGB or RGBA."""
    at, packed = 8, b""
    while at < len(data):
        nbytes, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, bits, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
        elif kind == b"IDAT":
            packed += data[at + 8:at + 8 + nbytes]
        at += 12 + nbytes
    samples = {2: 3, 6: 4}[colour]
    assert bits == 8
    raw, stride, above, rows = zlib.decompress(packed), width * samples, bytearray(width * samples), []
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        if kind == 2:
            line = bytearray((a + b) & 255 for a, b in zip(line, above))
        elif kind:
            for i in range(stride):
                left, up, corner = line[i - samples] if i >= samples else 0, above[i], above[i - samples] if i >= samples else 0
                p = left + up - corner
                paeth = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2]
                line[i] = (line[i] + (left if kind == 1 else (left + up) // 2 if kind == 3 else paeth)) & 255
        rows.append([(line[i] + line[i + 1] + line[i + 2]) // 3 for i in range(0, stride, samples)])
        above = line
    return rows


def cells(data):
    """Mean brightness of cells of CELL x CELL pixels of a PNG."""
    rows = read_png(data)
    return [[sum(sum(row[x:x + CELL]) for row in rows[y:y + CELL]) // CELL ** 2 for x in range(0, len(rows[0]) - CELL + 1, CELL)]
            for y in range(0, len(rows) - CELL + 1, CELL)]


def apart(a, b):
    """Mean difference of the cells, and the part of them that differ much."""
    pairs = [abs(x - y) for one, two in zip(a, b) for x, y in zip(one, two)]
    return sum(pairs) / len(pairs), sum(n > CELL_MOST for n in pairs) / len(pairs)


def is_alike(a, b):
    mean, many = apart(a, b)
    return len(a) == len(b) and len(a[0]) == len(b[0]) and mean <= MEAN_MOST and many <= CELLS_MOST
