// The timeline of a recording: a row for each topic with its messages over time, and the pictures at the slider's time.
"use strict";

(() => {
  const { make, ask } = shardfs;
  const section = document.getElementById("recording");
  if (!section) return;
  const about = JSON.parse(section.dataset.recording);
  const [first, last] = [BigInt(about.first), BigInt(about.last)];
  // Places of the slider. Times are nanoseconds of 64 bits.
  const PLACES = 10000;
  const seconds = (time) => Number(time - first) / 1e9;
  const timeOf = (place) => first + ((last - first) * BigInt(place)) / BigInt(PLACES);
  const range = `first=${about.first}&last=${about.last}`;

  const shapes = (name, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // Pictures beside the slider.
  const stage = make("div", { class: "stage" });
  const cameras = about.topics.filter((topic) => topic.pictures).map((topic) => {
    const figure = make("figure", { class: "camera" }, make("div", { class: "frame" }), make("figcaption", {}, topic.name));
    stage.append(figure);
    return { topic, figure, frame: figure.firstChild, caption: figure.lastChild };
  });
  stage.dataset.cameras = String(cameras.length);
  const slider = make("input", { type: "range", min: "0", max: String(PLACES), value: "0", step: "1", "aria-label": "Time" });
  const where = make("output", {});
  const transport = make("div", { class: "transport" }, slider, where);
  const player = make("div", { class: "player" });
  if (cameras.length > 0) player.append(stage);
  player.append(transport);

  // A row for each topic.
  const HEIGHT = 24;
  const tracks = make("div", { class: "tracks" });
  const rows = about.topics.map((topic) => {
    const name = make("a", { href: `/files/${topic.path}/`, title: topic.name }, topic.name);
    const plot = make("div", { class: "track" }, make("div", { class: "playhead" }));
    const count = make("span", { class: "count" }, shardfs.grouped(topic.messages));
    tracks.append(name, plot, count);
    plot.addEventListener("click", (event) => {
      const box = plot.getBoundingClientRect();
      go(Math.round((PLACES * (event.clientX - box.left)) / box.width));
    });
    return { topic, plot };
  });
  section.append(player, tracks);

  const draw = ({ plot }, { counts }) => {
    const most = Math.max(1, ...counts);
    // A single message is seen, too.
    const bar = (count, at) => {
      const height = count === 0 ? 0 : Math.max(3, (HEIGHT * count) / most);
      return count === 0 ? "" : `M${at} ${HEIGHT}v${-height}h1v${height}z`;
    };
    plot.append(shapes("svg", { viewBox: `0 0 ${counts.length} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      shapes("path", { d: counts.map(bar).join("") })));
  };
  // One after the other: each may need a part of the file.
  const marks = rows.reduce((before, row) => before
    .then(() => ask(`/-/api/marks/${row.topic.path}?${range}`))
    .then((found) => draw(row, found), () => row.plot.classList.add("unknown")), Promise.resolve());

  let place = 0;
  const show = (camera, found) => {
    const { topic, figure, frame, caption } = camera;
    caption.textContent = found.row === null ? topic.name : `${topic.name} · ${shardfs.grouped(found.row)}`;
    if (found.picture === null) {
      figure.dataset.state = "no picture";
      return null;
    }
    const image = make("img", { alt: topic.name, src: found.picture });
    return image.decode().then(() => {
      delete figure.dataset.state;
      image.classList.toggle("small", image.naturalWidth <= 160);
      frame.replaceChildren(image);
    }, () => (figure.dataset.state = "damaged"));
  };
  // The pictures of the last place that was asked for; those between are left out while others are fetched.
  let fetched = null;
  let isFetching = false;
  const fetchPictures = async () => {
    if (isFetching) return;
    isFetching = true;
    while (fetched !== place) {
      const at = place;
      await Promise.all(cameras.map((camera) =>
        ask(`/-/api/at/${camera.topic.path}?time=${timeOf(at)}`).then((found) => show(camera, found))
          .catch(() => (camera.figure.dataset.state = "damaged"))));
      fetched = at;
    }
    isFetching = false;
  };
  const go = (wanted) => {
    place = Math.min(PLACES, Math.max(0, wanted));
    slider.value = String(place);
    const said = `${seconds(timeOf(place)).toFixed(2)} s`;
    where.textContent = `${said} / ${seconds(last).toFixed(2)} s`;
    slider.setAttribute("aria-valuetext", said);
    for (const { plot } of rows) plot.firstChild.style.left = `${(100 * place) / PLACES}%`;
    shardfs.setPlace("t", place);
    return fetchPictures();
  };
  slider.addEventListener("input", () => go(Number(slider.value)));
  const shown = go(shardfs.place("t") ?? 0);
  shardfs.recording = { go, marks, shown };
})();
