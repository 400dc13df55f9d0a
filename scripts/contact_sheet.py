#!/usr/bin/env python3
"""Put the pictures of camera folders on one sheet: a row for each folder.

    scripts/contact_sheet.py OUTPUT.png FOLDER...

docs/img/frame.png was made with a mount of fixtures/ on mnt:

    scripts/contact_sheet.py docs/img/frame.png mnt/demo.kdb/episodes/0/images/{front,wrist}
"""

import sys
from pathlib import Path

from PIL import Image

SCALE, GAP = 2, 6


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows = [[Image.open(path).convert("RGB") for path in sorted(Path(folder).iterdir())] for folder in sys.argv[2:]]
    width = SCALE * max(picture.width for row in rows for picture in row)
    columns = max(map(len, rows))
    heights = [SCALE * max(picture.height for picture in row) for row in rows]
    sheet = Image.new("RGB", (columns * (width + GAP) - GAP, sum(heights) + GAP * (len(rows) - 1)), "white")
    top = 0
    for row, height in zip(rows, heights):
        for number, picture in enumerate(row):
            large = picture.resize((SCALE * picture.width, SCALE * picture.height), Image.Resampling.NEAREST)
            sheet.paste(large, (number * (width + GAP) + (width - large.width) // 2, top))
        top += height + GAP
    sheet.save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
