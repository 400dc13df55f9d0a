// Columns of an array as curves, by uPlot. The server sends at most a few thousand points of the range that is shown.
"use strict";

/** A colour of the stylesheet, as the browser resolves it for the theme. */
shardfs.colour = (name) => {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
};

shardfs.Chart = class {
  /**
   * @param {HTMLElement} box where it is put
   * @param {{title: string, path: string, page?: string, unit?: string, dtype: string, columns: number, column?: number,
   *   height: number, group: string, onPick?: function(number), onZoom?: function(?number, ?number),
   *   onData?: function(object)}} options
   */
  constructor(box, options) {
    const { make } = shardfs;
    this.options = options;
    this.at = null;
    this.range = [null, null];
    this.title = make("h3", {}, options.page ? make("a", { href: options.page }, options.title) : options.title);
    this.about = make("span", { class: "said" }, [options.dtype, options.unit].filter(Boolean).join(" · "));
    this.legend = make("ul", { class: "legend" });
    this.plot = make("div", { class: "plot" });
    this.element = make("div", { class: "chart" }, make("header", {}, this.title, this.about, this.legend), this.plot);
    this.element.chart = this;
    box.append(this.element);
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.plot);
    document.addEventListener("theme", () => this.data && this.draw());
  }

  /** Asks for the rows from `from` to `to` (all where null), and draws them. */
  async load(from = null, to = null) {
    const { path, columns, column = 0 } = this.options;
    const range = from === null ? "" : `&from=${Math.max(0, Math.floor(from))}&to=${Math.ceil(to) + 1}`;
    const asked = (this.asked = Symbol());
    let answer;
    try {
      answer = await shardfs.ask(`/-/api/curve/${path}?column=${column}&columns=${Math.min(columns, 16)}${range}`);
    } catch (error) {
      this.plot.replaceChildren(shardfs.make("p", { class: "notice bad" }, error.message));
      return;
    }
    // Another range was asked for meanwhile.
    if (asked !== this.asked) return;
    this.answer = answer;
    this.data = [answer.x, ...answer.y];
    this.draw();
    if (this.options.onData) this.options.onData(answer);
  }

  name(index) {
    const { window: [first, count], columns } = this.answer;
    return columns === 1 && count === 1 ? "" : String(first + index);
  }

  draw() {
    const { make, colour } = shardfs;
    const { answer, options } = this;
    if (this.u) this.u.destroy();
    this.plot.replaceChildren();
    this.playhead = make("div", { class: "playhead", hidden: "" });
    const isStepped = options.dtype === "bool" || answer.rows <= 1;
    const lines = answer.y.map((_, index) => colour(`--c${index % 8}`));
    this.legend.replaceChildren(...lines.map((line, index) => {
      const mark = make("span", { class: "line" });
      mark.style.background = line;
      const value = make("b", {}, "–");
      const name = this.name(index);
      return make("li", {}, mark, ...(name ? [`${name} `] : []), value);
    }));
    this.values = [...this.legend.querySelectorAll("b")];
    const rest = answer.columns - answer.window[1];
    const shown = rest > 0 ? `columns ${answer.window[0]}–${answer.window[0] + answer.window[1] - 1} of ${answer.columns}` : "";
    const thinned = answer.bucket > 1 ? `lowest and highest of each ${answer.bucket} rows` : "";
    this.about.textContent = [options.dtype, options.unit, shown, thinned].filter(Boolean).join(" · ");
    const [soft, line] = [colour("--soft"), colour("--line")];
    const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 }, font: "11px " + getComputedStyle(document.body).fontFamily };
    const pad = (min, max) => (min === max ? [min - 1, max + 1] : [min - (max - min) * 0.06, max + (max - min) * 0.06]);
    this.u = new uPlot({
      width: Math.max(this.plot.clientWidth, 120),
      height: options.height,
      legend: { show: false },
      padding: [8, 8, 0, 0],
      scales: {
        x: { time: false, range: (_, min, max) => (min === max ? [min - 0.5, max + 0.5] : [min, max]) },
        y: { range: (_, min, max) => (min === null ? [0, 1] : pad(min, max)) },
      },
      axes: [
        { ...axis, size: 26, gap: 3, incrs: [1, 2, 5].flatMap((n) => Array.from({ length: 10 }, (_, e) => n * 10 ** e)).sort((a, b) => a - b), values: (_, ticks) => ticks.map((tick) => shardfs.grouped(tick)) },
        { ...axis, size: (_, labels) => Math.max(52, 14 + 7 * Math.max(0, ...(labels ?? []).map((label) => label.length))), gap: 4, space: 34, values: (_, ticks) => shardfs.ticks(ticks) },
      ],
      series: [{}, ...lines.map((stroke) => ({
        stroke, width: 1.6, points: { show: answer.x.length < 2 },
        ...(isStepped && answer.x.length > 1 ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
      }))],
      cursor: {
        sync: { key: options.group, setSeries: false },
        drag: { x: true, y: false, setScale: false, dist: 6 },
        points: { size: 6 },
        bind: { dblclick: () => () => this.zoom(null, null) },
      },
      hooks: {
        draw: [() => this.mark(this.at)],
        setCursor: [(u) => this.say(u.cursor.idx)],
        setSelect: [(u) => {
          if (u.select.width < 6) return;
          const ends = [u.select.left, u.select.left + u.select.width].map((left) => u.posToVal(left, "x"));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          this.zoom(Math.floor(ends[0]), Math.ceil(ends[1]));
        }],
      },
    }, this.data, this.plot);
    this.u.over.append(this.playhead);
    this.mark(this.at);
    let pressed = null;
    this.u.over.addEventListener("pointerdown", (event) => (pressed = event.clientX));
    this.u.over.addEventListener("click", (event) => {
      if (pressed === null || Math.abs(event.clientX - pressed) > 4 || !options.onPick) return;
      options.onPick(Math.round(this.u.posToVal(event.clientX - this.u.over.getBoundingClientRect().left, "x")));
    });
  }

  /** Shows a range of rows; all where null. Others are told. */
  zoom(from, to) {
    if (this.options.onZoom) this.options.onZoom(from, to);
    else this.show(from, to);
  }

  show(from, to) {
    const last = (this.answer ? this.answer.rows : 1) - 1;
    this.range = from === null ? [null, null] : [Math.max(0, from), Math.min(last, Math.max(to, from + 1))];
    this.load(...this.range);
  }

  /** Marks a row, and says its values while nothing is pointed at. */
  mark(row) {
    this.at = row;
    if (!this.u || row === null || !this.playhead.isConnected) return;
    const left = this.u.valToPos(row, "x");
    const isInside = left >= 0 && left <= this.u.over.clientWidth + 0.5;
    this.playhead.hidden = !isInside;
    if (isInside) this.playhead.style.transform = `translateX(${left}px)`;
    if (this.u.cursor.idx === null || this.u.cursor.idx === undefined) this.say(null);
  }

  /** Puts the values of a point into the legend. */
  say(index) {
    if (!this.values || !this.data) return;
    let at = index;
    if ((at === null || at === undefined) && this.at !== null) {
      const found = this.answer.x.findIndex((x) => x >= this.at);
      at = found >= 0 && (this.answer.bucket > 1 || this.answer.x[found] === this.at) ? found : null;
    }
    const { min, max } = this.answer.statistics;
    this.values.forEach((value, series) => {
      value.textContent = at === null || at === undefined ? "–" : shardfs.short(this.data[series + 1][at], max - min);
    });
  }

  fit() {
    if (!this.u) return;
    const width = this.plot.clientWidth;
    if (width > 0 && width !== this.u.width) {
      this.u.setSize({ width, height: this.options.height });
      this.mark(this.at);
    }
  }
};
