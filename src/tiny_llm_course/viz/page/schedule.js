"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const { ids, steps, texts } = data;
const LANE = 20, AXIS = 20, PANEL = 64, GAP = 22, ROWS = 1000;
const $ = (id) => document.getElementById(id);
const view = { step: 0, lane: 0, pinned: false, byTime: false, cell: 0 };

function make(parent, name, text = "", properties = {}) {
  const element = Object.assign(document.createElement(name), properties);
  element.textContent = text;
  parent.append(element);
  return element;
}

const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const seconds = (time) => time.toFixed(time < 10 ? 3 : 1);

// Where steps are: each as wide as all others, or as long as it took.
const count = steps.length;
const whole = Math.max(steps[count - 1].time, 1e-9);
const began = (step) => (step === 0 ? 0 : steps[step - 1].time);
const left = (step) => (view.byTime ? (began(step) / whole) * count : step) * view.cell;
const width = () => count * view.cell;
function stepAt(x) {
  let [low, high] = [0, count - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (left(middle) <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

const panels = [{ name: "waiting", most: Math.max(1, ...steps.map((step) => step.waiting)) }];
if (data.pages !== null) panels.push({ name: "pages", most: data.pages });
const top0 = AXIS + Math.max(1, data.lanes) * LANE;
const height = top0 + panels.length * (PANEL + GAP) + 4;

let colours = {};
function readColours() {
  const root = getComputedStyle(document.documentElement);
  for (const name of ["card", "ink", "dim", "line", "accent", "prefill", "decode", "again", "idle", "waiting", "used", "kept", "error"]) {
    colours[name] = root.getPropertyValue(`--${name}`).trim();
  }
}

function draw() {
  const [canvas, scroll] = [$("chart"), $("scroll")];
  const density = window.devicePixelRatio || 1;
  const room = scroll.clientWidth;
  canvas.width = Math.round(room * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = `${room}px`;
  canvas.style.height = `${height}px`;
  $("wide").style.width = `${Math.max(width(), room)}px`;
  const context = canvas.getContext("2d");
  context.scale(density, density);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  const from = scroll.scrollLeft;
  const shown = { context, from, first: stepAt(from), last: stepAt(from + room), room };
  drawLanes(shown);
  drawPanels(shown);
  drawAxis(shown);
  drawChosen(shown);
}

function bar(context, colour, x, end, y, tall, gap) {
  context.fillStyle = colour;
  const [begin, width] = [Math.round(x), Math.round(end) - Math.round(x) - gap];
  context.fillRect(begin, y, Math.max(width, 1), tall);
}

function drawLanes({ context, from, first, last }) {
  for (const [, lane, begin, end] of data.spans) {
    if (end >= first && begin <= last) {
      bar(context, colours.idle, left(begin) - from, left(end) - from, AXIS + lane * LANE + 2, LANE - 4, 0);
    }
  }
  const gap = view.cell >= 4 ? 1 : 0;
  for (let step = first; step <= last; step++) {
    for (const [, lane, kind] of steps[step].work) {
      const colour = colours[data.kinds[kind]];
      bar(context, colour, left(step) - from, left(step + 1) - from, AXIS + lane * LANE + 2, LANE - 4, gap);
    }
  }
  for (const [id, lane, begin, end] of data.spans) {
    if (end >= first && begin <= last) name(context, ids[id], left(begin) - from, left(end) - from, lane);
  }
  for (let step = first; step <= last; step++) {
    for (const [, lane] of steps[step].preempted) mark(context, "×", colours.accent, left(step) - from, lane);
    for (const [, lane] of steps[step].aborted) mark(context, "◆", colours.ink, left(step) - from, lane);
    for (const [, lane, why] of steps[step].finished) {
      if (why === "error") mark(context, "!", colours.error, left(step + 1) - from, lane);
    }
  }
  if (last === count - 1) for (const [, lane] of data.late) mark(context, "◆", colours.ink, left(count) - from, lane);
}

// The request's name stays in sight while its lane does.
function name(context, text, begin, end, lane) {
  const x = Math.max(begin, 0) + 3;
  let label = [...text].slice(0, 40).join("");
  while (label && context.measureText(label).width > end - x - 6) label = [...label].slice(0, -1).join("");
  if (!label || (label.length < 2 && text.length > 1)) return;
  const y = AXIS + lane * LANE + LANE / 2;
  context.globalAlpha = 0.78;
  context.fillStyle = colours.card;
  context.fillRect(x - 2, y - 7, context.measureText(label).width + 4, 14);
  context.globalAlpha = 1;
  context.fillStyle = colours.ink;
  context.textAlign = "left";
  context.fillText(label, x, y + 1);
}

function mark(context, sign, colour, x, lane) {
  if (lane === null) return;
  context.save();
  context.font = `bold 17px ${getComputedStyle(document.body).fontFamily}`;
  context.textAlign = "center";
  context.lineWidth = 3;
  context.strokeStyle = colours.card;
  context.strokeText(sign, x, AXIS + lane * LANE + LANE / 2);
  context.fillStyle = colour;
  context.fillText(sign, x, AXIS + lane * LANE + LANE / 2);
  context.restore();
}

function drawPanels({ context, from, first, last, room }) {
  panels.forEach(({ name, most }, index) => {
    const bottom = top0 + (index + 1) * (PANEL + GAP);
    const tall = (value) => (value / most) * PANEL;
    for (let step = first; step <= last; step++) {
      const layers = name === "waiting"
        ? [["waiting", steps[step].waiting]]
        : [["kept", steps[step].used + steps[step].kept], ["used", steps[step].used]];
      for (const [colour, value] of layers) {
        if (value) bar(context, colours[colour], left(step) - from, left(step + 1) - from, bottom - tall(value), tall(value), 0);
      }
    }
    context.fillStyle = colours.line;
    context.fillRect(0, bottom, room, 1);
    if (name === "pages") context.fillRect(0, bottom - PANEL, room, 1);
    context.fillStyle = colours.dim;
    context.textAlign = "left";
    context.fillText(`${texts[name]} (≤ ${most.toLocaleString()})`, 3, bottom - PANEL - GAP / 2 + 2);
  });
}

function drawAxis({ context, from, room }) {
  context.fillStyle = colours.dim;
  context.textAlign = "left";
  const size = view.byTime ? (whole * 90) / Math.max(width(), 1) : 70 / view.cell;
  const power = 10 ** Math.floor(Math.log10(size));
  const every = Math.max([1, 2, 5, 10].find((times) => times * power >= size) * power, view.byTime ? 0 : 1);
  const end = view.byTime ? whole : count;
  for (let tick = 0; tick * every <= end; tick++) {
    const value = tick * every;
    const x = (view.byTime ? (value / whole) * width() : left(value)) - from;
    if (x < -60 || x > room) continue;
    context.fillRect(x, AXIS - 5, 1, 5);
    context.fillText(view.byTime ? `${+value.toPrecision(6)} s` : value, x + 3, AXIS / 2 - 1);
  }
}

function drawChosen({ context, from }) {
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  const [x, end] = [left(view.step) - from, left(view.step + 1) - from];
  context.strokeRect(x - 0.5, AXIS, Math.max(end - x, 2), height - AXIS - 4);
  context.lineWidth = 2.5;
  context.strokeRect(x - 0.5, AXIS + view.lane * LANE + 1, Math.max(end - x, 2), LANE - 2);
}

// What a step did, in words.
function showDetail() {
  const step = steps[view.step];
  const tokens = step.work.reduce((sum, work) => sum + work[4], 0);
  const times = { number: view.step, start: seconds(began(view.step)), end: seconds(step.time), count: tokens };
  $("step").textContent = filled(texts.page_step, times);
  const parts = [`${texts.running}: ${step.running}`, `${texts.waiting}: ${step.waiting}`];
  if (data.pages !== null) {
    const free = data.pages - step.used - step.kept;
    parts.push(filled(texts.page_pages, { used: step.used, kept: step.kept, free }));
  }
  $("counts").textContent = parts.join(" · ");
  const list = $("work");
  list.replaceChildren();
  for (const [id] of step.aborted) item(list, id, texts.aborted, colours.ink);
  for (const [id] of step.preempted) item(list, id, texts.preempted, colours.accent);
  for (const [id, lane, kind, start, length, scored] of [...step.work].sort((a, b) => a[1] - b[1])) {
    const values = { first: start, last: start + length - 1, count: length };
    const over = step.finished.find((place) => place[0] === id);
    const came = firstStep[id] === view.step && start > 0 ? filled(texts.page_found, { count: start }) : "";
    const said = [texts[data.kinds[kind]], filled(texts.page_work, values), came, over && `${texts.finished}: ${over[2]}`];
    const row = item(list, id, said.filter(Boolean).join(" · "), colours[data.kinds[kind]]);
    row.classList.toggle("chosen", lane === view.lane);
  }
  if (view.step === count - 1) for (const [id] of data.late) item(list, id, texts.aborted, colours.ink);
}

function item(list, id, text, colour) {
  const row = make(list, "li");
  make(row, "b", ids[id]);
  row.append(` ${text}`);
  row.style.borderColor = colour;
  return row;
}

// All requests.
const [firstStep, lastStep, stepsOf, preemptions, ends] = [{}, {}, {}, {}, {}];
steps.forEach((step, number) => {
  for (const [id] of step.work) {
    firstStep[id] ??= number;
    lastStep[id] = number;
    stepsOf[id] = (stepsOf[id] ?? 0) + 1;
  }
  for (const [id] of step.preempted) preemptions[id] = (preemptions[id] ?? 0) + 1;
  for (const [id, , why] of [...step.finished, ...step.aborted]) ends[id] = why;
});
for (const [id, , why] of data.late) ends[id] = why;

function buildTable() {
  $("requests").textContent = texts.requests;
  const table = make($("table"), "table");
  const head = make(make(table, "thead"), "tr");
  make(head, "th");
  for (const name of ["prompt", "first_step", "last_step", "steps_of", "preemptions", "end"]) make(head, "th", texts[name]);
  const body = make(table, "tbody");
  ids.slice(0, ROWS).forEach((text, id) => {
    const row = make(body, "tr");
    const button = make(make(row, "td"), "button", text, { type: "button", title: text });
    button.disabled = firstStep[id] === undefined;
    button.addEventListener("click", () => goTo(firstStep[id], steps[firstStep[id]].work.find((w) => w[0] === id)[1]));
    const values = [data.prompts[id], firstStep[id], lastStep[id], stepsOf[id] ?? 0, preemptions[id] ?? 0, ends[id]];
    for (const value of values) make(row, "td", value ?? "–");
  });
  if (ids.length > ROWS) make($("table"), "p", filled(texts.more, { count: ids.length - ROWS }), { className: "dim" });
}

function buildLegend() {
  const boxes = ["prefill", "decode", "again", "idle", "waiting"].concat(data.pages === null ? [] : ["used", "kept"]);
  for (const name of boxes) {
    const row = make($("legend"), "li");
    make(row, "i", "", { className: "box" }).style.background = `var(--${name})`;
    row.append(texts[name]);
  }
  for (const [sign, name, colour] of [["×", "preempted", "accent"], ["◆", "aborted", "ink"], ["!", "error", "error"]]) {
    const row = make($("legend"), "li");
    make(row, "i", sign).style.color = `var(--${colour})`;
    row.append(texts[name]);
  }
}

function buildTools() {
  const modes = [[texts.by_step, false], [texts.by_time, true]].map(([text, byTime]) => {
    const button = make($("tools"), "button", text, { type: "button" });
    button.addEventListener("click", () => {
      view.byTime = byTime;
      modes.forEach(([other, mode]) => other.setAttribute("aria-pressed", mode === byTime));
      goTo(view.step, view.lane);
    });
    button.setAttribute("aria-pressed", byTime === view.byTime);
    return [button, byTime];
  });
  for (const [sign, text, factor] of [["−", texts.zoom_out, 1 / 1.5], ["+", texts.zoom_in, 1.5]]) {
    const button = make($("tools"), "button", sign, { type: "button", title: text });
    button.setAttribute("aria-label", text);
    button.addEventListener("click", () => {
      view.cell = Math.min(Math.max(view.cell * factor, fit()), 80);
      goTo(view.step, view.lane);
    });
  }
}

const fit = () => Math.min(40, $("scroll").clientWidth / count);

function goTo(step, lane) {
  Object.assign(view, { step, lane, pinned: true });
  $("wide").style.width = `${width()}px`;
  const [scroll, x] = [$("scroll"), left(step)];
  if (x < scroll.scrollLeft || left(step + 1) > scroll.scrollLeft + scroll.clientWidth) {
    scroll.scrollLeft = x - scroll.clientWidth / 3;
  }
  update();
}

function update() {
  draw();
  showDetail();
}

function placeOf(event) {
  const x = event.offsetX + $("scroll").scrollLeft;
  const lane = Math.floor((event.offsetY - AXIS) / LANE);
  return { step: stepAt(x), lane: lane >= 0 && lane < data.lanes ? lane : view.lane };
}

function buildChart() {
  const chart = $("chart");
  chart.setAttribute("aria-label", texts.lanes);
  chart.addEventListener("pointermove", (event) => {
    if (view.pinned || event.pointerType === "touch") return;
    Object.assign(view, placeOf(event));
    update();
  });
  chart.addEventListener("click", (event) => {
    const place = placeOf(event);
    view.pinned = !(view.pinned && place.step === view.step && place.lane === view.lane);
    Object.assign(view, place);
    update();
  });
  chart.addEventListener("keydown", (event) => {
    const [right, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
    if (right === undefined) return;
    event.preventDefault();
    goTo(Math.min(Math.max(view.step + right, 0), count - 1), Math.min(Math.max(view.lane + down, 0), data.lanes - 1));
  });
  $("scroll").addEventListener("scroll", draw);
}

$("choose").textContent = texts.choose;
view.cell = Math.max(fit(), 8);
buildTools();
buildLegend();
buildTable();
buildChart();
readColours();
update();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  update();
});
addEventListener("resize", () => {
  view.cell = Math.max(view.cell, fit());
  draw();
});
