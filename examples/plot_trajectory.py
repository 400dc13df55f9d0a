#!/usr/bin/env python3
"""Draws a trajectory with its frames, from a mount, as one PNG.

    shardfs mount fixtures mnt
    examples/plot_trajectory.py mnt/demo.kdb/episodes/0 trajectory.png
    examples/plot_trajectory.py mnt/ep_001.wshard trajectory.png --curves signal/joint_pos.npy --frames images/cam0/rgb

The frames are at the top, each connected to its step. Below them is one curve for each column of an array. Needs numpy
and Pillow.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, MARGIN, LEFT, PLOT = 1200, 28, 64, 300
FRAME_GAP, MOST_FRAMES = 8, 8
INK, FAINT, GRID, PAPER = "#22262b", "#737b85", "#e4e7ea", "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5b5b5b")
SMOOTH = 3  # lines are drawn this many times larger and then scaled down, so that they have no stairs


def font(size):
    return ImageFont.load_default(size)


def pick(names, steps):
    """Returns (step, path) of at most MOST_FRAMES frames, evenly spread over an episode."""
    by_step = {int(path.stem): path for path in names if path.stem.isdigit()}
    wanted = np.linspace(0, steps - 1, min(MOST_FRAMES, steps)).round().astype(int)
    # Missing frames leave gaps in the numbering.
    return [(step, by_step[step]) for step in dict.fromkeys(wanted.tolist()) if step in by_step]


def ticks(low, high):
    """Returns round numbers in a range."""
    rough = (high - low) / 4 or 1
    power = 10.0 ** np.floor(np.log10(rough))
    step = min((m * power for m in (1, 2, 5, 10)), key=lambda s: abs(s - rough))
    return np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step


def curves(values, width, height):
    """Draws the lines alone; returns the picture and the range of values that it covers."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    pad = (high - low) * 0.06 or 1.0
    low, high = low - pad, high + pad
    picture = Image.new("RGBA", (width * SMOOTH, height * SMOOTH), (255, 255, 255, 0))
    draw = ImageDraw.Draw(picture)
    x = np.linspace(0, width * SMOOTH - 1, len(values)) if len(values) > 1 else np.array([0.0])
    for column in range(values.shape[1]):
        y = (high - values[:, column]) / (high - low) * (height * SMOOTH - 1)
        points = [(float(a), float(b)) for a, b in zip(x, y) if np.isfinite(b)]
        draw.line(points, fill=COLOURS[column % len(COLOURS)], width=2 * SMOOTH + 1, joint="curve")
    return picture.resize((width, height), Image.Resampling.LANCZOS), low, high


def draw(title, values, frames, label):
    values = values.reshape(len(values), -1).astype(float)
    steps, span = len(values), WIDTH - LEFT - MARGIN
    strip = 0
    if frames:
        wide = (span - FRAME_GAP * (len(frames) - 1)) // len(frames)
        pictures = [(step, Image.open(path).convert("RGB")) for step, path in frames]
        wide = min(wide, 3 * max(picture.width for _, picture in pictures))
        pictures = [(step, picture.resize((wide, round(picture.height * wide / picture.width)), Image.Resampling.LANCZOS))
                    for step, picture in pictures]
        strip = max(picture.height for _, picture in pictures)
    top = MARGIN + 34
    plot_top = top + strip + (34 if frames else 0)
    sheet = Image.new("RGB", (WIDTH, plot_top + PLOT + 62), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((LEFT, MARGIN - 6), title, INK, font(20))

    def x_of(step):
        return LEFT + (span * step / (steps - 1) if steps > 1 else 0)

    lines, low, high = curves(values, span, PLOT)
    for value in ticks(low, high):
        y = plot_top + (high - value) / (high - low) * PLOT
        pen.line((LEFT, y, LEFT + span, y), GRID)
        pen.text((LEFT - 8, y), f"{value:g}", FAINT, font(13), anchor="rm")
    for index, (step, picture) in enumerate(pictures if frames else ()):
        # Evenly spread, with a line to the step that each shows.
        room = span - picture.width
        left = round(LEFT + (room * index / (len(frames) - 1) if len(frames) > 1 else room / 2))
        sheet.paste(picture, (left, top))
        pen.rectangle((left, top, left + picture.width - 1, top + picture.height - 1), outline=GRID)
        middle, foot = left + picture.width / 2, top + picture.height
        pen.line((middle, foot + 3, x_of(step), plot_top - 3), "#b4bac1")
        pen.line((x_of(step), plot_top, x_of(step), plot_top + PLOT), GRID)
    sheet.paste(lines, (LEFT, plot_top), lines)
    pen.line((LEFT, plot_top + PLOT, LEFT + span, plot_top + PLOT), FAINT)
    for step in sorted({round(float(tick)) for tick in ticks(0, steps - 1) if float(tick).is_integer()}):
        pen.line((x_of(step), plot_top + PLOT, x_of(step), plot_top + PLOT + 4), FAINT)
        pen.text((x_of(step), plot_top + PLOT + 8), str(step), FAINT, font(13), anchor="ma")
    pen.text((LEFT + span, plot_top + PLOT + 30), "step", FAINT, font(13), anchor="ra")
    at = LEFT
    for column in range(values.shape[1]):
        name = f"{label}[{column}]" if values.shape[1] > 1 else label
        y = plot_top + PLOT + 38
        pen.line((at, y, at + 18, y), COLOURS[column % len(COLOURS)], 3)
        pen.text((at + 24, y), name, INK, font(13), anchor="lm")
        at += 24 + int(font(13).getlength(name)) + 22
        if at > LEFT + span - 120:
            break
    return sheet


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("episode", type=Path, help="a folder in a mount")
    parser.add_argument("output", type=Path)
    parser.add_argument("--curves", default="state.npy", help="an array with one row for each step")
    parser.add_argument("--frames", default="images/front", help="a folder of numbered pictures")
    parser.add_argument("--columns", type=int, default=len(COLOURS), help="draw at most this many columns")
    parser.add_argument("--title")
    args = parser.parse_args()
    values = np.load(args.episode / args.curves, mmap_mode="r")
    folder = args.episode / args.frames
    frames = pick(folder.iterdir(), len(values)) if folder.is_dir() else []
    values = values.reshape(len(values), -1)[:, :args.columns]
    episode = args.episode.absolute()
    mount = next((folder for folder in episode.parents if folder.is_mount()), episode.parent)
    title = args.title or str(episode.relative_to(mount))
    label = Path(args.curves).stem
    draw(title, values, frames, label).save(args.output, optimize=True)


if __name__ == "__main__":
    main()
