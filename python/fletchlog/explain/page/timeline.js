// The picture: one lane per partition over the polls, drawn on a canvas that is no larger than what is seen.

const GUTTER_MAX = 190;
const TAIL = 14;
const TOP = 46;

// As in shapes.py: of more partitions than there are accents, stripes along the edges of each bar tell them apart.
const ACCENTS = 6;
const STRIPES = [[], [0.74], [0], [0, 0.74]];
const STRIPE = 0.26;
const STRIPE_ALPHA = 0.7;

function accent(style, lane) {
  return style.getPropertyValue(`--t${lane % ACCENTS}`).trim();
}

function stripesOf(lane) {
  return STRIPES[Math.floor(lane / ACCENTS) % STRIPES.length];
}

// A bar in its partition's colour, and with its stripes.
function laneBar(pen, { fill, ink, stripes }, x, y, width, height) {
  pen.fillStyle = fill;
  pen.fillRect(x, y, width, height);
  if (!stripes.length) return;
  pen.fillStyle = ink;
  pen.globalAlpha = STRIPE_ALPHA;
  for (const top of stripes) pen.fillRect(x, y + height * top, width, height * STRIPE);
  pen.globalAlpha = 1;
}

class Timeline {
  // view: {from, to, poll}, shared by the pictures, which are above each other
  constructor(model, view, onPick) {
    this.model = model;
    this.view = view;
    this.element = document.createElement("figure");
    this.element.className = "picture";
    this.element.style.margin = "0 0 .7rem";
    const run = model.run;
    const asks = model.asks.length;
    this.element.innerHTML = `<h2></h2><div class="top"><canvas></canvas></div><div class="scroller" tabindex="-1"><canvas role="img"></canvas><div class="spacer"></div></div><p class="hidden-lanes" aria-hidden="true"></p>`;
    this.element.querySelector("h2").append(run.title, small([plural(model.polls, "poll"), plural(model.total, "record"), plural(asks, "request")].join(", ")));
    [this.top, this.canvas] = this.element.querySelectorAll("canvas");
    this.top.setAttribute("aria-hidden", "true");
    this.canvas.setAttribute("aria-label", `Polls from left to right, one lane per partition. ${run.title}. The slider and the text below tell the same poll by poll.`);
    this.scroller = this.element.querySelector(".scroller");
    this.spacer = this.element.querySelector(".spacer");
    this.hint = this.element.querySelector(".hidden-lanes");
    const lanes = model.story.lanes.length;
    this.row = lanes <= 8 ? 30 : lanes <= 16 ? 22 : lanes <= 48 ? 15 : 12;
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    for (const canvas of [this.top, this.canvas]) {
      canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); onPick(this.pollAt(event)); });
      canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) onPick(this.pollAt(event)); });
      canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    }
    this.onView = () => {};
    this.wanted = [];
  }

  pollAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - this.gutter) / (box.width - this.gutter - TAIL);
    const { from, to } = this.view;
    return Math.max(1, Math.min(this.model.polls, Math.floor(from + x * (to - from)) + 1));
  }

  #wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!event.ctrlKey && !sideways) return;
    event.preventDefault();
    const { from, to } = this.view;
    if (event.ctrlKey) {
      const at = this.pollAt(event) - 0.5;
      const factor = event.deltaY > 0 ? 1.25 : 0.8;
      this.onView(at - (at - from) * factor, at + (to - at) * factor);
    } else {
      const move = ((event.deltaX || event.deltaY) / 400) * (to - from);
      this.onView(from + move, to + move);
    }
  }

  draw() {
    const { model, view } = this;
    // without the scroll bar, so that the strip above is aligned with its lanes
    const width = this.scroller.clientWidth;
    if (!width) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const family = getComputedStyle(document.body).fontFamily;
    const lanes = model.story.lanes;
    const measure = this.top.getContext("2d");
    measure.font = `12px ${family}`;
    this.gutter = Math.min(GUTTER_MAX, Math.max(104, 26 + Math.max(...lanes.map((_, lane) => measure.measureText(laneName(model.story, lane)).width))));
    const area = { x: this.gutter, w: width - this.gutter - TAIL };
    const x = (poll) => area.x + ((poll - view.from) / (view.to - view.from)) * area.w;
    const ink = colour("--ink");
    const fills = lanes.map((_, lane) => ({ fill: accent(style, lane), ink, stripes: stripesOf(lane) }));
    const paint = { x, area, width, fills, colour, family };
    this.#drawTop(paint);
    this.#drawLanes(paint);
  }

  #drawTop({ x, area, width, fills, colour, family }) {
    const { model, view } = this;
    const pen = prepareCanvas(this.top, width, TOP);
    pen.font = `12px ${family}`;
    pen.fillStyle = colour("--quiet");
    pen.fillText("poll", 14, 10);
    const step = niceStep((view.to - view.from) / Math.max(3, area.w / 90));
    pen.textAlign = "center";
    for (let poll = Math.ceil(view.from / step) * step; poll <= view.to; poll += step) {
      if (poll < 1 || poll > model.polls) continue;
      const text = poll.toLocaleString("en");
      pen.fillText(text, Math.min(x(poll - 0.5), width - 4 - pen.measureText(text).width / 2), 10);
    }
    pen.textAlign = "left";
    pen.fillStyle = colour("--ink");
    pen.font = `600 12px ${family}`;
    pen.fillText("as received", 14, 32);
    pen.save();
    pen.beginPath();
    pen.rect(area.x, 20, area.w, TOP);
    pen.clip();
    let drawn = -1;
    for (const run of visible(model.ribbon, view)) {
      const left = Math.max(area.x, x(run.x0));
      const right = x(run.x1);
      if (right - drawn < 0.6) continue;
      drawn = right;
      const wide = Math.max(0.7, right - left - (right - left > 4 ? 1 : 0));
      laneBar(pen, fills[run.lane], left, 22, wide, 20);
      pen.font = `600 11px ${family}`;
      const names = [laneName(model.story, run.lane), String(model.story.lanes[run.lane][1])];
      const text = right - left > 14 && names.find((name) => right - left > pen.measureText(name).width + 8);
      if (text) {
        pen.fillStyle = colour("--on");
        pen.fillText(text, left + 4, 32);
      }
    }
    pen.restore();
    this.#now(pen, x, colour, 18, TOP);
  }

  #drawLanes({ x, area, width, fills, colour, family }) {
    const { model, view, row } = this;
    const lanes = model.story.lanes;
    this.spacer.style.height = "0px";
    const full = lanes.length * row + 6;
    const limit = Math.round(window.innerHeight * (document.querySelector("#pictures.two") ? 0.24 : 0.5));
    const height = Math.min(full, Math.max(limit, 120));
    const pen = prepareCanvas(this.canvas, width, height);
    this.scroller.style.maxHeight = `${height}px`;
    this.spacer.style.height = `${full - height}px`;
    this.#scroll(height);
    const offset = this.scroller.scrollTop;
    this.#tellHidden(Math.round(offset / row), Math.max(0, Math.floor((full - height - offset) / row + 0.5)));
    const first = Math.max(0, Math.floor(offset / row));
    const last = Math.min(lanes.length - 1, Math.ceil((offset + height) / row));
    for (let lane = first; lane <= last; lane++) {
      const y = lane * row - offset + 2;
      this.#drawLane(pen, lane, y, { x, area, fills, colour, family });
      const topic = lanes[lane][0];
      if (lane > 0 && lanes[lane - 1][0] !== topic) {
        pen.fillStyle = colour("--line");
        pen.fillRect(0, y - 1, width, 1);
      }
    }
    this.#now(pen, x, colour, 0, height);
  }

  #drawLane(pen, lane, y, { x, area, fills, colour, family }) {
    const { model, view, row } = this;
    const inner = row >= 15 ? row - 5 : row - 3;
    const size = row >= 22 ? 12 : row >= 15 ? 11 : 9.5;
    pen.font = `${size}px ${family}`;
    pen.textAlign = "left";
    laneBar(pen, fills[lane], 5, y, 5, inner);
    pen.fillStyle = colour("--ink");
    pen.fillText(fit(pen, laneName(model.story, lane), this.gutter - 22), 14, y + inner / 2 + 0.5);
    pen.save();
    pen.beginPath();
    pen.rect(area.x, y - 1, area.w, row);
    pen.clip();
    pen.fillStyle = colour("--soft");
    pen.fillRect(area.x, y + inner / 2 - 0.5, area.w, 1);
    pen.fillStyle = fills[lane].fill;
    pen.globalAlpha = 0.22;
    for (const [from, to] of model.waitsOf[lane]) {
      if (to < view.from || from > view.to) continue;
      pen.fillRect(x(from), y, Math.max(0.5, x(to) - x(from)), inner);
    }
    pen.globalAlpha = 1;
    const asks = model.asksOf[lane].filter((at) => at >= view.from && at <= view.to).map(x);
    let drawn = -1;
    for (const run of visible(model.runsOf[lane], view)) {
      const left = x(run.x0);
      const right = x(run.x1);
      if (right - drawn < 0.4) continue;
      drawn = right;
      laneBar(pen, fills[lane], left, y, Math.max(0.8, right - left - (right - left > 5 ? 1 : 0)), inner);
      if (row < 15) continue;
      const text = run.records.toLocaleString("en");
      pen.font = `600 ${size}px ${family}`;
      const [free, room] = widest(Math.max(left, area.x), Math.min(right, area.x + area.w), asks);
      if (room > pen.measureText(text).width + 8) {
        pen.fillStyle = colour("--on");
        pen.textAlign = "center";
        pen.fillText(text, free + room / 2, y + inner / 2 + 0.5);
        pen.textAlign = "left";
      }
    }
    pen.fillStyle = colour("--ink");
    let asked = -9;
    for (const at of asks) {
      if (at - asked < 2) continue;
      asked = at;
      pen.fillRect(asked - 0.75, y - 1, 1.5, inner + 2);
    }
    pen.restore();
  }

  #now(pen, x, colour, top, bottom) {
    const { from, to, poll } = this.view;
    if (poll <= from || poll - 1 >= to) return;
    const left = x(poll - 1);
    const right = Math.max(left + 2, x(poll));
    pen.fillStyle = colour("--now");
    pen.globalAlpha = 0.06;
    pen.fillRect(left, top, right - left, bottom - top);
    pen.globalAlpha = 1;
    pen.fillRect(left - 0.75, top, 1.5, bottom - top);
    if (right - left > 4) pen.fillRect(right - 0.75, top, 1.5, bottom - top);
  }

  #tellHidden(above, below) {
    const parts = [above && `↑ ${above} above`, below && `↓ ${below} below`].filter(Boolean);
    const text = parts.length ? `more partitions: ${parts.join(", ")}` : "";
    if (this.hint.textContent !== text) this.hint.textContent = text;
  }

  // With the next drawing these lanes are seen, or as many of them as there is room for.
  showAll(lanes) {
    this.wanted = lanes;
  }

  #scroll(height) {
    const lanes = this.wanted;
    this.wanted = [];
    if (!lanes.length) return;
    const [y, end] = [Math.min(...lanes) * this.row, (Math.max(...lanes) + 1) * this.row];
    const { scrollTop } = this.scroller;
    if (y >= scrollTop && end <= scrollTop + height) return;
    this.scroller.scrollTop = end - y > height ? lanes[0] * this.row : Math.max(0, (y + end - height) / 2);
  }
}

// The pen of a canvas of that size, on an empty sheet.
function prepareCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    canvas.style.width = `${width}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.textBaseline = "middle";
  return pen;
}

// The stretches that overlap the view; they are sorted, so the first is found by halving.
function visible(stretches, view) {
  let low = 0;
  let high = stretches.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (stretches[middle].x1 < view.from) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < stretches.length && stretches[end].x0 <= view.to) end++;
  return stretches.slice(low, end);
}

// Where a label meets no mark: start and width of the widest stretch between them.
function widest(left, right, marks) {
  let best = [left, -1];
  let from = left;
  for (const to of [...marks.filter((mark) => mark > left && mark < right), right]) {
    if (to - from > best[1]) best = [from, to - from];
    from = to;
  }
  return best;
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) || 1;
}

function fit(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length;
  const tail = text.slice(text.lastIndexOf("-"));
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…${tail}`).width > width) end--;
  return `${text.slice(0, end)}…${tail}`;
}

function small(text) {
  const element = document.createElement("small");
  element.textContent = text;
  return element;
}
