// An array as curves, pictures and values, with statistics of what is shown.
"use strict";

(() => {
  const box = document.getElementById("array");
  if (!box) return;
  const { make, short, grouped } = shardfs;
  const array = JSON.parse(box.dataset.array);
  const COLUMNS = 16;

  const views = [];
  const addCurves = () => views.push({ id: "curves", label: "Curves", build: buildCurves });
  const addPicture = () => views.push({ id: "picture", label: array.picture.count > 1 ? "Pictures" : "Picture", build: buildPicture });
  if (array.picture && array.picture_first) addPicture();
  if (array.numbers && array.shape.length > 0 && array.rows > 1) addCurves();
  if (array.picture && !array.picture_first) addPicture();
  if (array.numbers && array.rows * array.columns > 1) views.push({ id: "histogram", label: "Histogram", build: buildHistogram });
  views.push({ id: "values", label: "Values", build: buildValues });

  const tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
  const panels = new Map();
  box.append(tabs);
  for (const view of views) {
    const tab = make("button", { type: "button", role: "tab", id: `tab-${view.id}`, "aria-controls": `panel-${view.id}`, onclick: () => show(view.id) }, view.label);
    const panel = make("div", { role: "tabpanel", id: `panel-${view.id}`, "aria-labelledby": `tab-${view.id}`, hidden: "" });
    tabs.append(tab);
    box.append(panel);
    panels.set(view.id, { view, tab, panel });
  }
  tabs.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.stopPropagation();
    const all = [...panels.values()];
    const at = all.findIndex(({ tab }) => tab === document.activeElement);
    const next = all[(at + by + all.length) % all.length];
    next.tab.focus();
    show(next.view.id);
  });

  function show(id) {
    for (const [name, entry] of panels) {
      entry.tab.setAttribute("aria-selected", String(name === id));
      entry.tab.tabIndex = name === id ? 0 : -1;
      entry.panel.hidden = name !== id;
      if (name === id && !entry.isBuilt) {
        entry.isBuilt = true;
        entry.view.build(entry.panel);
      }
    }
  }

  function buildCurves(panel) {
    const about = make("div");
    const chart = new shardfs.Chart(panel, {
      title: "All columns", path: array.path, dtype: array.dtype, columns: Math.min(array.columns, COLUMNS), height: 320, group: "array",
      onData: (answer) => describe(about, answer),
    });
    chart.title.textContent = array.columns === 1 ? "Values" : "Columns";
    const tools = make("div", { class: "pager" });
    if (array.columns > COLUMNS) {
      const move = (by) => {
        const first = Math.max(0, Math.min((chart.options.column ?? 0) + by, array.columns - 1));
        chart.options.column = first;
        chart.options.columns = Math.min(COLUMNS, array.columns - first);
        [before.disabled, behind.disabled] = [first === 0, first + COLUMNS >= array.columns];
        chart.load(...chart.range);
      };
      const before = make("button", { type: "button", disabled: "", onclick: () => move(-COLUMNS) }, "← Columns");
      const behind = make("button", { type: "button", onclick: () => move(COLUMNS) }, "Columns →");
      tools.append(before, behind);
    }
    tools.append(make("button", { type: "button", onclick: () => chart.show(null, null) }, "Show all rows"), make("span", {}, "Drag over the curve to zoom, double-click for all."));
    panel.prepend(make("h2", { class: "hidden" }, "Curves"), tools);
    panel.append(about);
    chart.load();
  }

  /** Statistics as a list. */
  function listed(statistics) {
    const entry = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
    const [smallest, largest, mean] = [statistics.min, statistics.max, statistics.mean].map((value) => short(value, statistics.max - statistics.min));
    const list = make("dl", { class: "statistics" }, entry("Smallest", smallest), entry("Largest", largest), entry("Mean", mean), entry("Values", grouped(statistics.count)));
    if (statistics.not_finite > 0) list.append(entry("NaN or infinite", grouped(statistics.not_finite)));
    if (statistics.min !== null && statistics.max > statistics.min) {
      const most = Math.max(...statistics.histogram);
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const set = (element, attributes) => Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
      set(svg, { viewBox: `0 0 ${statistics.histogram.length} 20`, preserveAspectRatio: "none", role: "img", "aria-label": `Histogram of ${statistics.count} values between ${smallest} and ${largest}` });
      statistics.histogram.forEach((number, index) => {
        const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        const height = (20 * number) / most;
        set(bar, { x: index + 0.08, width: 0.84, y: 20 - height, height });
        svg.append(bar);
      });
      const bars = make("div", { class: "wide" }, make("dt", {}, "Histogram"));
      bars.append(make("dd", {}, svg));
      list.append(bars);
    }
    return list;
  }

  /** Statistics of an answer, and what they are of. */
  function describe(about, { statistics, range, rows, looked_at, window: [first, count], columns }) {
    const ofRows = range[0] === 0 && range[1] === rows ? `all ${grouped(rows)} rows` : `rows ${grouped(range[0])}–${grouped(range[1] - 1)}`;
    const ofColumns = count < columns ? `, columns ${first}–${first + count - 1}` : "";
    const sample = looked_at < range[1] - range[0] ? `; an even sample of ${grouped(looked_at)} rows was read` : "";
    about.replaceChildren(listed(statistics), make("p", { class: "note" }, `Computed over what is shown: ${ofRows}${ofColumns}${sample}.`));
  }

  async function buildHistogram(panel) {
    try {
      const { statistics, elements, looked_at } = await shardfs.ask(`/-/api/distribution/${array.path}`);
      const what = looked_at < elements ? `an even sample of ${grouped(looked_at)} of ${grouped(elements)} elements` : `all ${grouped(elements)} elements`;
      panel.append(listed(statistics), make("p", { class: "note" }, `Computed over ${what}.`));
    } catch (error) {
      panel.append(make("p", { class: "notice bad" }, error.message));
    }
  }

  /** Fields that choose two axes and the indexes along the others; `change` is called with them as a query. */
  function axesTools(change) {
    const { shape } = array;
    const channels = array.picture.channels > 1 || shape[shape.length - 1] === 1 ? 1 : 0;
    const chosen = { rows: shape.length - 2 - channels, columns: shape.length - 1 - channels, at: shape.map(() => 0) };
    const box = make("div", { class: "pager axes" });
    const draw = () => {
      const choice = (label, key, other) => {
        const select = make("select", {}, ...shape.map((length, axis) => make("option", { value: axis }, `axis ${axis} (${grouped(length)})`)));
        select.value = chosen[key];
        select.addEventListener("change", () => {
          // The two axes differ: the other takes the one that was left.
          if (Number(select.value) === chosen[other]) chosen[other] = chosen[key];
          chosen[key] = Number(select.value);
          draw();
          tell();
        });
        return make("label", {}, `${label} `, select);
      };
      const indexes = shape.flatMap((length, axis) => {
        if (axis === chosen.rows || axis === chosen.columns) return [];
        const input = make("input", { type: "number", min: 0, max: length - 1, value: chosen.at[axis] });
        input.addEventListener("input", () => {
          chosen.at[axis] = Math.min(length - 1, Math.max(0, Math.floor(Number(input.value)) || 0));
          tell();
        });
        return [make("label", {}, `axis ${axis} at `, input)];
      });
      box.replaceChildren(choice("Rows", "rows", "columns"), choice("Columns", "columns", "rows"), ...indexes);
    };
    const tell = () => change(`axes=${chosen.rows},${chosen.columns}&at=${chosen.at.join(",")}`);
    draw();
    return box;
  }

  function buildPicture(panel) {
    const canvas = make("canvas", { role: "img", "aria-label": "Picture" });
    const said = make("p", { class: "note", "aria-live": "polite" });
    const { count } = array.picture;
    const slider = make("input", { type: "range", min: 0, max: count - 1, value: 0, "aria-label": "Picture" });
    const number = make("output", {}, "");
    const slide = make("div", { class: "slide" }, slider, number);
    let axes = null;
    const axesChosen = (query) => {
      axes = query;
      slide.hidden = true;
      load();
    };
    const tools = array.shape.length > 2 ? [axesTools(axesChosen)] : [];
    panel.append(...tools, make("figure", { class: "plane" }, canvas), ...(count > 1 ? [slide] : []), said);
    let shown = null;
    let asked = null;
    const load = async () => {
      const index = Number(slider.value);
      number.textContent = `${grouped(index)} / ${grouped(count - 1)}`;
      const mine = (asked = Symbol());
      let answer;
      try {
        answer = await shardfs.plane(array.path, axes ?? `index=${index}`, array.dtype);
      } catch (error) {
        said.textContent = error.message;
        return;
      }
      if (mine !== asked) return;
      shown = answer;
      // Small pictures are enlarged, and long, narrow ones stretched.
      const shape = Math.min(4, Math.max(1 / 4, shown.width / shown.height));
      canvas.style.width = `min(100%, ${Math.max(860, shown.width)}px, ${58 * shape}vh)`;
      canvas.style.aspectRatio = shape;
      shardfs.drawPlane(canvas, shown, shown.min, shown.max);
      say();
    };
    const say = () => {
      const { min, max, every, width, height, isColoured } = shown;
      const thinned = ["row", "column"].map((name, axis) => (every[axis] > 1 ? `, one ${name} of ${grouped(every[axis])}` : "")).join("");
      const what = isColoured ? " Colours run from the smallest to the largest." : "";
      said.textContent = `${height} × ${width} pixels${thinned}. Values of this picture: ${short(min, max - min)} to ${short(max, max - min)}.${what}`;
    };
    canvas.addEventListener("pointermove", (event) => {
      if (!shown) return;
      const box = canvas.getBoundingClientRect();
      const x = Math.min(shown.width - 1, Math.floor(((event.clientX - box.left) / box.width) * shown.width));
      const y = Math.min(shown.height - 1, Math.floor(((event.clientY - box.top) / box.height) * shown.height));
      const at = (y * shown.width + x) * shown.channels;
      const values = Array.from(shown.values.subarray(at, at + shown.channels), (value) => short(value, shown.max - shown.min));
      said.textContent = `Row ${y * shown.every[0]}, column ${x * shown.every[1]}: ${values.join(", ")}`;
    });
    canvas.addEventListener("pointerleave", () => shown && say());
    slider.addEventListener("input", load);
    load();
  }

  function buildValues(panel) {
    new shardfs.Rows(panel, { source: `/-/api/rows/${array.path}`, rows: array.rows, columns: array.columns, usesPlace: true });
  }

  show(shardfs.place("row") === null ? views[0].id : "values");
})();
