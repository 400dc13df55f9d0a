// Plays an episode: the frames of all cameras at one step in time, and a mark in the curves of its signals.
"use strict";

(() => {
  const { make, ask } = shardfs;
  const player = document.getElementById("player");
  if (!player || !document.getElementById("time")) return;
  const episode = JSON.parse(player.dataset.episode);
  const byId = (id) => document.getElementById(id);
  const [slider, where, speed, play, spoken] = ["time", "where", "speed", "play", "spoken"].map(byId);
  const last = episode.steps - 1;
  // Where the container does not say how fast it was recorded.
  const rate = episode.rate || 10;
  // Decoded pixels that are kept, four bytes each.
  const KEPT = 192 * 1024 * 1024;
  // Steps that are fetched ahead.
  const AHEAD = 10;

  class Camera {
    constructor(description, figure) {
      Object.assign(this, description);
      this.figure = figure;
      this.frame = figure.querySelector(".frame");
      // Frames by address, the one used least lately first.
      this.kept = new Map();
      this.most = 60;
      const first = this.frame.querySelector("img");
      if (first && !this.depth) this.adopt(first.getAttribute("src"), first);
    }

    /** The last run of frames that begins at a step or before it. */
    run(step) {
      let [low, high] = [0, this.runs.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.runs[middle].first <= step) low = middle + 1;
        else high = middle;
      }
      return this.runs[low - 1];
    }

    /** The address of the frame of a step, or of the last frame before it. */
    address(step) {
      const run = this.run(step);
      if (!run) return null;
      const number = Math.min(step, run.first + run.count - 1);
      return `${this.folder}${String(number).padStart(run.digits, "0")}${run.suffix}`;
    }

    has(step) {
      const run = this.run(step);
      return run !== undefined && step < run.first + run.count;
    }

    adopt(address, image) {
      const entry = { image, state: "loading" };
      entry.done = image.decode().then(
        () => {
          entry.state = "ready";
          image.classList.toggle("small", image.naturalWidth <= 160);
          this.fit(image.naturalWidth, image.naturalHeight);
        },
        () => (entry.state = "failed"),
      );
      this.kept.set(address, entry);
      return entry;
    }

    adoptAddress(address) {
      const image = make("img", { alt: this.name });
      image.decoding = "async";
      image.src = address;
      return this.adopt(address, image);
    }

    adoptDepth(address) {
      const entry = { state: "loading" };
      const index = Number(address.slice(this.folder.length).split(".")[0]);
      entry.done = shardfs.plane(this.depth, `index=${index}`, "u16").then(
        (plane) => {
          entry.plane = plane;
          entry.state = "ready";
          this.fit(plane.width, plane.height);
        },
        () => (entry.state = "failed"),
      );
      this.kept.set(address, entry);
      return entry;
    }

    /** Keeps as many frames of a size as there is room for. */
    fit(width, height) {
      this.most = Math.min(600, Math.max(2 * AHEAD, Math.floor(KEPT / (4 * width * height) / episode.cameras.length)));
    }

    /** Draws depth in colours, over the range of what was shown of it so far. */
    draw(plane) {
      this.canvas ??= make("canvas", { role: "img", "aria-label": this.name, class: "small" });
      this.min = Math.min(this.min ?? plane.min, plane.min);
      this.max = Math.max(this.max ?? plane.max, plane.max);
      shardfs.drawPlane(this.canvas, plane, this.min, this.max);
      this.figure.querySelector("figcaption").textContent = `${this.name} · ${this.min}–${this.max}`;
      return this.canvas;
    }

    /** The entry of an address; fetches it if it is not there. */
    get(address) {
      let entry = this.kept.get(address);
      if (entry) {
        this.kept.delete(address);
        this.kept.set(address, entry);
        return entry;
      }
      entry = this.depth ? this.adoptDepth(address) : this.adoptAddress(address);
      for (const [old, { image: shown }] of this.kept) {
        if (this.kept.size <= this.most) break;
        if (!shown?.isConnected) this.kept.delete(old);
      }
      return entry;
    }

    isReady(step) {
      const address = this.address(step);
      return address === null || this.get(address).state !== "loading";
    }

    /** Shows the frame of a step as soon as it is there, unless another is wanted by then. */
    show(step) {
      this.step = step;
      const address = this.address(step);
      if (address === null) {
        this.say("no picture");
        return Promise.resolve();
      }
      const entry = this.get(address);
      const put = () => {
        if (this.step !== step) return;
        if (entry.state === "failed") this.say("damaged");
        else {
          const image = entry.plane ? this.draw(entry.plane) : entry.image;
          if (this.frame.firstElementChild !== image) this.frame.replaceChildren(image);
          this.say(this.has(step) ? null : "no picture");
        }
      };
      if (entry.state !== "loading") {
        put();
        return Promise.resolve();
      }
      return entry.done.then(put);
    }

    say(state) {
      if (state === null) delete this.figure.dataset.state;
      else this.figure.dataset.state = state;
    }
  }

  const figures = [...player.querySelectorAll(".camera")];
  const cameras = episode.cameras.map((description, index) => new Camera(description, figures[index]));
  const charts = [];
  let [step, isPlaying, direction] = [0, false, 1];

  const fetchAhead = () => {
    for (let ahead = 1; ahead <= AHEAD; ahead += 1) {
      const next = step + direction * ahead;
      if (next < 0 || next > last) break;
      for (const camera of cameras) {
        const address = camera.address(next);
        if (address !== null) camera.get(address);
      }
    }
  };

  let noted = null;
  const note = () => {
    clearTimeout(noted);
    noted = setTimeout(() => shardfs.setPlace("t", step), isPlaying ? 500 : 80);
  };

  // Times of steps that are not evenly spaced: nanoseconds, a page of them at a time.
  const PAGE = 200;
  const times = new Map();
  const timeOf = (at) => {
    const page = Math.floor(at / PAGE);
    if (!times.has(page)) {
      times.set(page, []);
      ask(`/-/api/rows/${episode.times}?from=${page * PAGE}&count=${PAGE}`).then(({ cells }) => {
        times.set(page, cells[0].map(BigInt));
        say();
      }).catch(() => {});
    }
    return times.get(page)[at % PAGE];
  };
  /** Seconds since the first step, where they are known. */
  const secondsOf = (at) => {
    if (!episode.times) return episode.rate ? at / rate : null;
    const [first, time] = [timeOf(0), timeOf(at)];
    return first === undefined || time === undefined ? null : Number(time - first) / 1e9;
  };

  const say = () => {
    const known = secondsOf(step);
    const seconds = known === null ? "" : ` · ${known.toFixed(2)} s`;
    where.textContent = `${shardfs.grouped(step)} / ${shardfs.grouped(last)}${seconds}`;
    slider.setAttribute("aria-valuetext", `step ${step} of ${last}${seconds}`);
  };

  /** Goes to a step: frames, curves, slider, link. The promise ends when all frames are shown. */
  const go = (wanted) => {
    const next = Math.min(last, Math.max(0, wanted));
    direction = next < step ? -1 : 1;
    step = next;
    slider.value = String(step);
    say();
    charts.forEach((chart) => chart.mark(step));
    if (episode.texts) sayText();
    note();
    const shown = Promise.all(cameras.map((camera) => camera.show(step)));
    const at = step;
    return shown.then(() => {
      if (at === step) fetchAhead();
    });
  };

  const setPlaying = (playing) => {
    if (playing === isPlaying) return;
    isPlaying = playing;
    play.classList.toggle("playing", playing);
    play.title = playing ? "Pause (Space)" : "Play (Space)";
    play.setAttribute("aria-label", playing ? "Pause" : "Play");
    if (!playing) return note();
    if (step === last) go(0);
    let due = performance.now();
    const tick = (now) => {
      if (!isPlaying) return;
      const pause = 1000 / (rate * Number(speed.value));
      // Of fast recordings, more than one step a frame of the screen. Frames that are not there yet are waited for.
      const steps = Math.floor((now - due) / pause);
      if (steps >= 1) {
        const next = Math.min(last, step + steps);
        if (cameras.every((camera) => camera.isReady(next))) {
          due = steps > 8 ? now : due + steps * pause;
          go(next);
          if (next === last) return setPlaying(false);
        } else {
          due = now - pause;
        }
      }
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  };

  const stepBy = (count) => {
    setPlaying(false);
    go(step + count);
  };

  slider.max = String(last);
  slider.addEventListener("input", () => {
    setPlaying(false);
    go(Number(slider.value));
  });
  play.addEventListener("click", () => setPlaying(!isPlaying));
  byId("back").addEventListener("click", () => stepBy(-1));
  byId("forward").addEventListener("click", () => stepBy(1));
  const wanted = () => shardfs.place("t") ?? 0;
  addEventListener("hashchange", () => go(wanted()));

  const leave = (id) => {
    const link = byId(id);
    if (!link.hidden) location.href = link.href;
  };
  const { keys } = shardfs;
  const ownKeys = [
    [[" ", "k"], "play or pause", () => setPlaying(!isPlaying)],
    [["ArrowLeft", "ArrowRight"], "one step, with Shift ten", (event) => stepBy((event.key === "ArrowLeft" ? -1 : 1) * (event.shiftKey ? 10 : 1))],
    [["Home", "End"], "first and last step", (event) => stepBy(event.key === "Home" ? -last : last)],
    [["[", "]"], "previous and next episode", (event) => leave(event.key === "[" ? "previous" : "next")],
    [["-", "+"], "slower and faster", (event) => {
      const by = event.key === "-" ? -1 : 1;
      speed.selectedIndex = Math.min(speed.options.length - 1, Math.max(0, speed.selectedIndex + by));
    }],
  ];
  keys.unshift(...ownKeys.map(([names, what, act]) => ({ names, what, act })));

  const showNeighbours = ({ previous, next }) => {
    for (const [id, address] of [["previous", previous], ["next", next]]) {
      if (!address) continue;
      byId(id).href = address;
      byId(id).hidden = false;
    }
  };
  const neighbours = player.dataset.neighbours;
  if (neighbours.startsWith("{")) showNeighbours(JSON.parse(neighbours));
  else ask(neighbours).then(showNeighbours).catch(() => {});

  // What is said or asked for at each step.
  let texts = [];
  const sayText = () => {
    const text = texts[step] ?? "";
    spoken.textContent = text;
    spoken.hidden = text === "";
  };
  if (episode.texts) {
    ask(`/-/api/texts/${episode.texts}`).then((found) => {
      texts = found;
      sayText();
    }).catch(() => {});
  }

  // Curves come when they are seen.
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      requestAnimationFrame(() => target.chart.load(...target.chart.range));
    }
  }, { rootMargin: "300px" });
  const zoom = (from, to) => charts.forEach((chart) => chart.show(from, to));
  const addCurves = () => {
    const signals = byId("signals");
    for (const group of episode.groups) {
      const isAlone = group.signals.length === 1 && group.signals[0].name === group.name;
      if (!isAlone) signals.append(make("h2", {}, group.name));
      for (const signal of group.signals) {
        const chart = new shardfs.Chart(signals, {
          ...signal, title: signal.name, page: `/-/view/${signal.path}`, height: 130, group: "episode",
          onPick: (picked) => {
            setPlaying(false);
            go(picked);
          },
          onZoom: zoom,
        });
        chart.at = step;
        charts.push(chart);
        seen.observe(chart.element);
      }
    }
  };

  // Their scripts are loaded behind the first frames: running those, and drawing curves, keeps the browser busy. A frame
  // that takes long does not hold them up.
  const own = document.currentScript.src;
  const load = (name) => new Promise((done, failed) => {
    document.head.append(make("script", { src: new URL(name, own).href, onload: done, onerror: failed }));
  });
  const curves = Promise.race([go(wanted()), new Promise((done) => setTimeout(done, 400))]).catch(() => {})
    .then(() => Promise.all(["uplot.js", "chart.js"].map(load)))
    .then(addCurves)
    .catch(() => byId("signals").append(make("p", { class: "notice bad" }, "the scripts of curves could not be loaded")));

  shardfs.player = { go, cameras, charts, curves, get step() { return step; }, get isPlaying() { return isPlaying; } };
})();
