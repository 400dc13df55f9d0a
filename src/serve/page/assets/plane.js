// One picture of an array, drawn on a canvas.
"use strict";

(() => {
  // Dark to bright, as far from each other for the eye as the values are: points of the "viridis" map.
  const MAP = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
  const coloured = (part) => {
    const at = Math.min(1, Math.max(0, part)) * (MAP.length - 1);
    const low = Math.min(MAP.length - 2, Math.floor(at));
    return MAP[low].map((from, index) => from + (MAP[low + 1][index] - from) * (at - low));
  };

  /** A picture of an array, which a query names: its size, its smallest and largest value, its values row by row. */
  shardfs.plane = async (path, query, dtype) => {
    const bytes = new Uint8Array(await shardfs.ask(`/-/api/plane/${path}?${query}`, "arrayBuffer"));
    const end = bytes.indexOf(10);
    const head = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
    const body = bytes.slice(end + 1);
    const Numbers = { u8: Uint8Array, f32: Float32Array, f64: Float64Array }[head.pixels];
    // Bytes are shades of grey or colours as they are; of other numbers, colours stand for values.
    return { ...head, values: new Numbers(body.buffer), isColoured: dtype !== "u8" };
  };

  /** Draws it, with colours that run from `min` to `max` where values are no colours. */
  shardfs.drawPlane = (canvas, { width, height, channels, values, isColoured }, min, max) => {
    canvas.width = width;
    canvas.height = height;
    const image = new ImageData(width, height);
    // Halves, because the largest minus the smallest number has no room in a number.
    const span = max > min ? max / 2 - min / 2 : 1;
    for (let at = 0; at < width * height; at += 1) {
      const from = at * channels;
      const isNumber = Number.isFinite(values[from]);
      if (channels >= 3) image.data.set(values.subarray(from, from + 3), at * 4);
      else if (!isColoured) image.data.fill(values[from], at * 4, at * 4 + 3);
      else if (isNumber) image.data.set(coloured((values[from] / 2 - min / 2) / span), at * 4);
      image.data[at * 4 + 3] = channels === 4 ? values[from + 3] : isNumber ? 255 : 0;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
})();
