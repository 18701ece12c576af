"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const { labels, texts } = data;
const count = labels.length;
const BEST = 8;
const TICKS = [0, 0.05, 0.25, 0.5, 1];
const weights = Uint8Array.from(atob(data.weights), (letter) => letter.charCodeAt(0));
const view = { layer: data.layer, head: data.head, query: count - 1, pinned: false };
const $ = (id) => document.getElementById(id);

function make(parent, name, text = "", properties = {}) {
  const element = Object.assign(document.createElement(name), properties);
  element.textContent = text;
  parent.append(element);
  return element;
}

function filled(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

function rowOf(layer, head, query) {
  const start = ((layer * data.heads + head) * count + query) * count;
  return weights.subarray(start, start + count);
}

const isNumber = (step) => step <= data.steps;
const weightOf = (step) => step / data.steps;
function percent(step) {
  if (!isNumber(step)) return texts.not_a_number;
  const share = Math.round(100 * weightOf(step));
  return share === 0 && step > 0 ? "<1%" : `${share}%`;
}

// Colours: the root of the weight runs along a ramp, so that small weights can be told apart.
let ramp = [];
let style = {};
function readColours() {
  const root = getComputedStyle(document.documentElement);
  for (const name of ["ink", "dim", "line", "accent", "bad"]) {
    style[name] = root.getPropertyValue(`--${name}`).trim();
  }
  const stops = root.getPropertyValue("--ramp").trim().split(/\s+/).map(rgb);
  ramp = Array.from({ length: data.steps + 1 }, (_, step) => {
    const place = Math.sqrt(weightOf(step)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((part, i) => Math.round(part + (stops[low + 1][i] - part) * (place - low)));
  });
}
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const colour = (step) => (isNumber(step) ? ramp[step] : rgb(style.bad));
const css = (step) => `rgb(${colour(step).join(" ")})`;
function inkOn(step) {
  const [red, green, blue] = colour(step).map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#10151d" : "#ffffff"; // the one of more contrast
}

function paint(canvas, layer, head) {
  canvas.width = canvas.height = count;
  const context = canvas.getContext("2d");
  const image = context.createImageData(count, count);
  for (let query = 0; query < count; query++) {
    rowOf(layer, head, query).forEach((step, key) => {
      image.data.set([...colour(step), 255], 4 * (query * count + key));
    });
  }
  context.putImageData(image, 0, 0);
}

// All heads: a small map for each, a row for each layer.
const maps = [];
function buildHeads() {
  const nav = $("heads");
  $("maps").textContent = texts.maps;
  document.documentElement.style.setProperty("--heads", data.heads);
  nav.style.gridTemplateColumns = `1.2rem repeat(${data.heads}, minmax(1.5rem, 4rem))`;
  make(nav, "span");
  for (let head = 0; head < data.heads; head++) make(nav, "span", head);
  for (let layer = 0; layer < data.layers; layer++) {
    make(nav, "span", layer);
    for (let head = 0; head < data.heads; head++) {
      const button = make(nav, "button", "", { type: "button", title: nameOf(layer, head) });
      button.setAttribute("aria-label", nameOf(layer, head));
      button.addEventListener("click", () => update({ layer, head }));
      maps.push({ button, canvas: make(button, "canvas"), layer, head });
    }
  }
}
const nameOf = (layer, head) => filled(texts.name, { layer, head });

// The text: a button for each token.
const chips = [];
function buildTokens() {
  labels.forEach((label, token) => {
    const chip = make($("tokens"), "button", label, { type: "button" });
    chip.addEventListener("pointerenter", () => view.pinned || update({ query: token }));
    chip.addEventListener("click", () => pin(token));
    chip.addEventListener("keydown", (event) => {
      const next = token + { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (next >= 0 && next < count) {
        chips[next].focus();
        update({ query: next, pinned: true });
      }
    });
    chips.push(chip);
    if (label.endsWith("⏎")) make($("tokens"), "br");
  });
}

function pin(query) {
  update({ query, pinned: !(view.pinned && view.query === query) });
}

function showTokens(row) {
  chips.forEach((chip, key) => {
    chip.style.background = css(row[key]);
    chip.style.color = inkOn(row[key]);
    chip.title = percent(row[key]);
    chip.classList.toggle("query", key === view.query);
    chip.classList.toggle("unseen", key > view.query && row[key] === 0);
    chip.setAttribute("aria-pressed", key === view.query);
  });
}

function showBest(row) {
  $("query").textContent = filled(texts.looks_at, { token: labels[view.query] });
  $("origin").textContent = `${texts.position} ${view.query} · ${texts.bytes} ${data.bytes[view.query]}`;
  const best = [...row.keys()].filter((key) => row[key] > 0).sort((a, b) => row[b] - row[a] || a - b).slice(0, BEST);
  $("best").replaceChildren();
  for (const key of best) {
    const item = make($("best"), "li");
    make(item, "span", percent(row[key]), { className: "part" });
    make(item, "span", labels[key], { className: "name", title: `${labels[key]} · ${texts.position} ${key}` });
    make(item, "span", "", { className: "bar" }).style.width = `${100 * Math.min(1, weightOf(row[key]))}%`;
  }
  if (best.length === 0) make($("best"), "li", texts.nothing);
  else showCell({ query: view.query, key: best[0] });
}

// The whole head: a row for each token that looks. Its labels are drawn where they are large enough to be read.
const map = { left: 0, bottom: 0, cell: 0 };
function showMap() {
  const canvas = $("map");
  const box = getComputedStyle(canvas.parentElement);
  const room = canvas.parentElement.clientWidth - parseFloat(box.paddingLeft) - parseFloat(box.paddingRight);
  const context = canvas.getContext("2d");
  context.font = fontOf(13);
  const longest = Math.max(...labels.map((label) => context.measureText(label).width));
  const margin = Math.round(Math.min(longest + 12, 110, room * 0.28));
  const cell = Math.min(26, (room - margin) / count);
  const labelled = cell >= 11;
  map.cell = labelled ? cell : Math.min(26, room / count);
  map.left = map.bottom = labelled ? margin : 0;
  const side = map.cell * count;
  resize(canvas, context, map.left + side + 1, side + map.bottom + 1);
  for (let query = 0; query < count; query++) {
    rowOf(view.layer, view.head, query).forEach((step, key) => {
      context.fillStyle = css(step);
      const [left, right, top, bottom] = [key, key + 1, query, query + 1].map((line) => Math.round(line * map.cell));
      context.fillRect(map.left + left, top, right - left, bottom - top);
    });
  }
  context.strokeStyle = style.line;
  context.strokeRect(map.left + 0.5, 0.5, side, side);
  context.strokeStyle = style.accent;
  context.lineWidth = 2;
  context.strokeRect(map.left + 1, view.query * map.cell + 1, side - 2, Math.max(map.cell - 2, 1));
  if (labelled) drawLabels(context, side);
}

const fontOf = (size) => `${size}px ${getComputedStyle(document.body).fontFamily}`;

function resize(canvas, context, width, height) {
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = `${width}px`;
  context.scale(density, density);
}

function drawLabels(context, side) {
  context.font = fontOf(Math.min(13, map.cell - 1));
  context.textAlign = "right";
  context.textBaseline = "middle";
  labels.forEach((label, token) => {
    const text = fitted(context, label, map.left - 8);
    const middle = (token + 0.5) * map.cell;
    context.fillStyle = token === view.query ? style.accent : style.ink;
    context.fillText(text, map.left - 6, middle);
    context.save();
    context.translate(map.left + middle, side + 6);
    context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0);
    context.restore();
  });
}

function fitted(context, label, room) {
  if (context.measureText(label).width <= room) return label;
  const letters = [...label];
  while (letters.length && context.measureText(`${letters.join("")}…`).width > room) letters.pop();
  return `${letters.join("")}…`;
}

function cellAt(event) {
  const [query, key] = [event.offsetY, event.offsetX - map.left].map((place) => Math.floor(place / map.cell));
  return query >= 0 && query < count && key >= 0 && key < count ? { query, key } : null;
}

function buildMap() {
  $("map").addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    if (!cell) return;
    if (!view.pinned) update({ query: cell.query });
    showCell(cell);
  });
  $("map").addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell) {
      pin(cell.query);
      showCell(cell);
    }
  });
}

function showCell({ query, key }) {
  $("cell").textContent = `${labels[query]} → ${labels[key]}  ${percent(rowOf(view.layer, view.head, query)[key])}`;
}

function showScale() {
  const canvas = $("ramp");
  canvas.width = data.steps + 1;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  for (let x = 0; x <= data.steps; x++) {
    context.fillStyle = css(Math.round((x / data.steps) ** 2 * data.steps));
    context.fillRect(x, 0, 1, 1);
  }
  $("ticks").replaceChildren();
  for (const tick of TICKS) make($("ticks"), "span", `${100 * tick}%`).style.left = `${100 * Math.sqrt(tick)}%`;
}

function update(changes) {
  const moved = "layer" in changes;
  Object.assign(view, changes);
  if (moved) showHead();
  const row = rowOf(view.layer, view.head, view.query);
  showTokens(row);
  showBest(row);
  showMap();
}

function showHead() {
  $("chosen").textContent = nameOf(view.layer, view.head);
  for (const { button, layer, head } of maps) {
    button.setAttribute("aria-pressed", layer === view.layer && head === view.head);
  }
}

function repaint() {
  readColours();
  for (const { canvas, layer, head } of maps) paint(canvas, layer, head);
  showScale();
  update({ layer: view.layer, head: view.head });
}

$("model").textContent = data.model;
$("choose").textContent = texts.choose;
$("map-title").textContent = texts.map;
buildHeads();
buildTokens();
buildMap();
repaint();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
addEventListener("resize", showMap);
