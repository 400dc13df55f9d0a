// What all pages have: the theme, the keys, the filter of names, lines about containers, folded JSON.
"use strict";

const shardfs = {
  /** An element with attributes and children. Texts are never taken for markup. */
  make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== null) element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  },

  /** The answer of a route of the server, or an error with the server's words. */
  async ask(address, kind = "json") {
    const answer = await fetch(address);
    if (answer.ok) return answer[kind]();
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.error || `the server answered ${answer.status}`);
  },

  grouped(number) {
    return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  },

  /** A number in few digits: at least two behind the point, and as many as tell numbers from each other that differ by
      `span`. */
  short(value, span = Infinity) {
    if (value === null || value === undefined) return "–";
    if (Number.isSafeInteger(value)) return String(value);
    const size = Math.abs(value);
    const whole = size >= 1 ? Math.floor(Math.log10(size)) + 1 : 0;
    const telling = span > 0 ? Math.ceil(Math.log10(size / span)) + 3 : 0;
    const digits = Math.min(17, Math.max(5, whole + 2, telling));
    return size >= 1e15 || (size < 1e-5 && size > 0) ? value.toExponential(Math.min(16, Math.max(3, telling))) : String(Number(value.toPrecision(digits)));
  },

  /** Labels of an axis: with as many digits as tell each from the next. */
  ticks(values) {
    const step = Math.min(...values.slice(1).map((value, index) => value - values[index]));
    const most = Math.max(...values.map(Math.abs));
    if (!Number.isFinite(step) || step <= 0) return values.map((value) => shardfs.short(value));
    const places = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
    const needed = Math.max(0, Math.ceil(Math.log10(most / step) - 1e-9));
    const label = (value) => {
      if (value === 0) return "0";
      if (most >= 1e9 || places > 6) return value.toExponential(Math.min(needed, 15));
      return places === 0 ? shardfs.grouped(value.toFixed(0)) : value.toFixed(places);
    };
    return values.map(label);
  },

  /** What a page adds to the keys that are shown and acted on: [keys, what they do, function of the event]. */
  keys: [],
  key(names, what, act) {
    shardfs.keys.push({ names, what, act });
  },

  /** The part of the address behind `#`, as `name=number`. */
  place(name) {
    const found = new URLSearchParams(location.hash.slice(1)).get(name);
    return found !== null && /^\d+$/.test(found) ? Number(found) : null;
  },
  setPlace(name, number) {
    history.replaceState(null, "", `${location.pathname}${location.search}#${name}=${number}`);
  },
};

(() => {
  const { make, ask } = shardfs;
  const byId = (id) => document.getElementById(id);

  const switchTheme = () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // A browser that keeps nothing shows it on this page only.
    }
    document.dispatchEvent(new Event("theme"));
  };
  byId("theme").addEventListener("click", switchTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));

  const showKeys = () => {
    const rows = shardfs.keys.map(({ names, what }) =>
      make("tr", {}, make("td", {}, ...names.map((name) => make("kbd", {}, name === " " ? "Space" : name.replace("Arrow", "")))), make("td", {}, what)));
    const dialog = make("dialog", { "aria-labelledby": "keys-title" },
      make("h2", { id: "keys-title" }, "Keys"), make("table", {}, make("tbody", {}, ...rows)),
      make("form", { method: "dialog" }, make("button", {}, "Close")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };
  byId("help").addEventListener("click", showKeys);

  const filter = document.querySelector(".filter input");
  shardfs.key(["t"], "light or dark", switchTheme);
  if (filter) shardfs.key(["/"], "filter names", () => filter.focus());
  shardfs.key(["u"], "up one folder", () => {
    const folders = document.querySelectorAll(".crumbs a");
    if (folders.length > 0) location.href = folders[folders.length - 1].href;
  });
  shardfs.key(["?"], "these keys", showKeys);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
    const at = event.target;
    const isTyping = at.matches("input:not([type=range]), select, textarea, [contenteditable]");
    if (isTyping || (event.key === " " && at.matches("button, a, summary"))) return;
    const found = shardfs.keys.find(({ names }) => names.includes(event.key));
    if (!found) return;
    event.preventDefault();
    found.act(event);
  });

  // Names of a listing that is whole are filtered here; of a longer one the server finds them.
  if (filter && filter.dataset.long !== "true") {
    const rows = [...document.querySelectorAll(".files tbody tr")];
    const lower = (row, what) => row.querySelector(what)?.textContent.toLowerCase();
    const matches = (row, wanted) => lower(row, ".name").includes(wanted) || lower(row, ".of-arrays .dtype") === wanted;
    const apply = () => rows.forEach((row) => (row.hidden = !matches(row, filter.value.toLowerCase())));
    if (new URLSearchParams(location.search).get("q") === null) {
      filter.form.addEventListener("submit", (event) => event.preventDefault());
      filter.addEventListener("input", apply);
    }
  }

  // Lines about containers come when they are seen, a few at a time.
  const waiting = [];
  let asking = 0;
  const askNext = () => {
    while (asking < 4 && waiting.length > 0) {
      const cell = waiting.shift();
      asking += 1;
      ask(cell.dataset.summary)
        .then(({ format, text, size, damage }) => {
          cell.nextElementSibling.textContent = size;
          if (format) cell.append(make("span", { class: "badge format" }, format), " ");
          cell.append(text);
          const name = cell.parentElement.querySelector(".name");
          if (damage && !name.querySelector(".bad")) name.append(" ", make("span", { class: "badge bad", title: damage }, "damaged"));
          if (!format && damage) cell.append(damage);
        })
        .catch((error) => cell.append(error.message))
        .finally(() => {
          asking -= 1;
          askNext();
        });
    }
  };
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      waiting.push(target.querySelector("[data-summary]"));
    }
    askNext();
  });
  // Their rows are watched: on a phone, a cell has no place until it says something.
  document.querySelectorAll("[data-summary]").forEach((cell) => seen.observe(cell.parentElement));

  const picture = byId("picture");
  if (picture) {
    const describe = () => {
      picture.classList.toggle("small", picture.naturalWidth <= 256);
      picture.nextElementSibling.textContent = `${picture.naturalWidth} × ${picture.naturalHeight} pixels`;
    };
    picture.addEventListener("error", () => (picture.nextElementSibling.textContent = "This picture can't be read."));
    if (picture.complete && picture.naturalWidth > 0) describe();
    else picture.addEventListener("load", describe);
  }

  // JSON as it is written: the text of a number, all members of an object in their order. A scalar is its text; an
  // object or list has the names and values in it.
  const TOKEN = /[[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s[\]{},:"]+/g;
  const read = (text) => {
    // Fails for what is no JSON.
    JSON.parse(text);
    const open = [{ isList: true, entries: [] }];
    let name = null;
    for (const [token] of text.matchAll(TOKEN)) {
      const { isList, entries } = open.at(-1);
      if (token === "]" || token === "}") open.pop();
      else if (!isList && name === null) name = JSON.parse(token);
      else {
        const value = token === "[" || token === "{" ? { isList: token === "[", entries: [] } : token;
        entries.push([isList ? String(entries.length) : name, value]);
        name = null;
        if (typeof value === "object") open.push(value);
      }
    }
    return open[0].entries[0][1];
  };

  // JSON, folded. Children are made when their parent is unfolded, some at a time.
  const MANY = 500;
  // Letters that the text of a string escapes are shown.
  const scalar = (token) => (token.startsWith('"') ? make("span", { class: "string" }, JSON.stringify(JSON.parse(token))) : make("span", { class: "scalar" }, token));
  const label = (key) => (key === null ? [] : [make("span", { class: "key" }, key), ": "]);
  const node = (key, value, open) => {
    if (typeof value === "string") return make("div", { class: "leaf" }, ...label(key), scalar(value));
    const { isList, entries } = value;
    const about = isList ? `[ ${entries.length} ]` : `{ ${entries.length} }`;
    const details = make("details", {}, make("summary", {}, ...label(key), make("span", { class: "about" }, about)));
    let made = null;
    const fill = (from) => {
      entries.slice(from, from + MANY).forEach(([name, child]) => made.append(node(name, child, false)));
      const next = from + MANY;
      if (next < entries.length) {
        const more = make("button", { type: "button" }, `Show ${Math.min(MANY, entries.length - next)} more`);
        more.addEventListener("click", () => {
          more.remove();
          fill(next);
        });
        made.append(more);
      }
    };
    details.unfold = () => {
      if (made === null) {
        made = make("div");
        details.append(made);
        fill(0);
      }
    };
    details.addEventListener("toggle", () => details.open && details.unfold());
    if (open) {
      details.unfold();
      details.open = true;
    }
    return details;
  };
  const json = byId("json");
  if (json) {
    try {
      const root = node(null, read(json.textContent), true);
      [...root.querySelectorAll("details")].slice(0, 40).forEach((details) => {
        details.unfold();
        details.open = true;
      });
      json.replaceChildren(make("div", { class: "tree" }, root));
      document.querySelector("[data-json-tools]").hidden = false;
      const each = (act) => json.querySelectorAll("details").forEach(act);
      byId("unfold").addEventListener("click", () => {
        for (let round = 0; round < 8; round += 1) {
          each((details) => {
            details.unfold();
            details.open = true;
          });
          if (json.querySelectorAll("details").length > 5000) break;
        }
      });
      byId("fold").addEventListener("click", () => each((details) => (details.open = details === root)));
    } catch {
      // It stays as the text that it is.
    }
  }
})();
