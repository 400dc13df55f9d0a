// Rows of a table by page. The server is asked for the rows that are shown only, wherever they stand.
"use strict";

shardfs.Rows = class {
  /**
   * @param {HTMLElement} box where it is put
   * @param {{source: string, rows: number, columns: number, usesPlace: boolean}} options
   */
  constructor(box, options) {
    const { make } = shardfs;
    Object.assign(this, { from: 0, column: 0, target: null, ...options });
    this.COUNT = 50;
    this.COLUMNS = 24;
    const button = (label, title, act) => make("button", { type: "button", title, onclick: act }, label);
    this.back = button("← Rows", "Rows before (PageUp)", () => this.go(this.from - this.COUNT));
    this.on = button("Rows →", "Rows behind (PageDown)", () => this.go(this.from + this.COUNT));
    this.left = button("← Columns", "Columns before", () => this.go(this.from, this.column - this.COLUMNS));
    this.right = button("Columns →", "Columns behind", () => this.go(this.from, this.column + this.COLUMNS));
    this.said = make("span", { "aria-live": "polite" });
    this.input = make("input", { type: "number", min: 0, max: Math.max(0, this.rows - 1), placeholder: "Row", "aria-label": "Go to row" });
    const jump = make("form", {}, this.input, make("button", { type: "submit" }, "Go"));
    jump.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.input.value !== "") this.jump(Number(this.input.value));
    });
    const sideways = this.columns > this.COLUMNS ? [this.left, this.right] : [];
    const whole = this.rows > this.COUNT ? [this.back, this.on] : [];
    this.head = make("thead");
    this.body = make("tbody");
    this.scroll = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Cells" }, make("table", { class: "grid" }, this.head, this.body));
    box.append(make("div", { class: "pager" }, ...whole, ...sideways, this.said, jump), this.scroll);
    box.table = this;
    if (this.rows === 0) this.said.textContent = "no rows";
    const wanted = this.usesPlace ? shardfs.place("row") : null;
    if (wanted === null) this.go(0);
    else this.jump(wanted);
    if (this.usesPlace) addEventListener("hashchange", () => shardfs.place("row") !== null && this.jump(shardfs.place("row"), false));
  }

  /** Goes to a row, which is marked. */
  jump(row, isNoted = true) {
    this.target = Math.min(Math.max(0, row), this.rows - 1);
    if (isNoted && this.usesPlace) shardfs.setPlace("row", this.target);
    this.go(Math.max(0, Math.min(this.target - 5, this.rows - this.COUNT)));
  }

  async go(from, column = this.column) {
    this.from = Math.max(0, Math.min(from, Math.max(0, this.rows - 1)));
    this.column = Math.max(0, Math.min(column, Math.max(0, this.columns - 1)));
    const asked = (this.asked = Symbol());
    let answer;
    try {
      answer = await shardfs.ask(`${this.source}?from=${this.from}&count=${this.COUNT}&column=${this.column}&columns=${this.COLUMNS}`);
    } catch (error) {
      this.said.textContent = error.message;
      return;
    }
    if (asked === this.asked) this.draw(answer);
  }

  draw({ rows, from, columns, column, heads, cells }) {
    const { make, grouped } = shardfs;
    const count = Math.max(0, Math.min(this.COUNT, rows - from));
    this.head.replaceChildren(make("tr", {}, make("th", { scope: "col" }, "row"), ...heads.map(({ name, kind, numeric, page }) =>
      make("th", { scope: "col", class: numeric ? "num" : "" }, page ? make("a", { href: page }, name) : name, make("small", {}, kind)))));
    const lines = Array.from({ length: count }, (_, line) => {
      const line_cells = heads.map(({ numeric, error }, index) => {
        if (error !== null) return line === 0 ? make("td", { class: "bad" }, error) : make("td");
        const value = cells[index][line];
        if (value === null || value === undefined) return make("td", {}, make("span", { class: "missing" }, "missing"));
        return make("td", { class: numeric ? "num" : "", title: value.length > 60 ? value : null }, value);
      });
      return make("tr", { class: from + line === this.target ? "target" : "" }, make("th", { scope: "row" }, grouped(from + line)), ...line_cells);
    });
    this.body.replaceChildren(...lines);
    this.back.disabled = from === 0;
    this.on.disabled = from + count >= rows;
    this.left.disabled = column === 0;
    this.right.disabled = column + heads.length >= columns;
    const sideways = columns > heads.length ? ` · columns ${grouped(column)}–${grouped(column + heads.length - 1)} of ${grouped(columns)}` : "";
    if (count > 0) this.said.textContent = `Rows ${grouped(from)}–${grouped(from + count - 1)} of ${grouped(rows)}${sideways}`;
    const marked = this.body.querySelector(".target");
    if (marked) marked.scrollIntoView({ block: "nearest" });
    this.answer = { from, heads, cells };
  }
};

(() => {
  const box = document.getElementById("table");
  if (!box) return;
  const rows = new shardfs.Rows(box, { ...JSON.parse(box.dataset.table), usesPlace: true });
  shardfs.key(["PageUp", "PageDown"], "rows before and behind", (event) => rows.go(rows.from + (event.key === "PageUp" ? -rows.COUNT : rows.COUNT)));
  shardfs.key(["g"], "go to a row", () => rows.input.focus());
})();
