// The producer's view: every batch from the queue to its answer, muted partitions, and the window of five.

const WINDOW = 5;
const ENDS = { acknowledged: "acknowledged", "acknowledged-as-duplicate": "acknowledged as a duplicate", failed: "failed", expired: "expired", split: "split" };
const BACK = { retried: "to be sent again", "re-enqueued": "back in its queue", "refused-out-of-order": "refused: out of order" };
// so many windows are read at a glance; of more partitions only those are shown that have something to show
const WINDOWS = 12;

class ProducerModel {
  constructor(data) {
    this.data = data;
    this.spans = data.lanes.map(() => []);
    this.muted = data.lanes.map(() => []);
    this.slots = data.lanes.map(() => 1);
    this.eventsOf = new Map();
    this.snapshots = [];
    this.every = Math.max(256, Math.ceil(data.events.length / 128));
    this.#read();
  }

  #read() {
    const { lanes, events } = this.data;
    const open = new Map();
    const busy = lanes.map(() => []);
    const state = lanes.map(() => ({ flight: new Map(), queued: new Map(), muted: false, done: 0, failed: 0 }));
    events.forEach((row, at) => {
      if (at % this.every === 0) this.snapshots.push(copyLanes(state));
      const event = ProducerModel.event(row);
      const { kind, lane, batch, sequence } = event;
      if (batch >= 0) {
        if (!this.eventsOf.has(batch)) this.eventsOf.set(batch, []);
        this.eventsOf.get(batch).push(at);
      }
      if (lane >= 0 && kind === "sent") {
        // the lowest line of the lane on which nothing is under way
        const slot = busy[lane].findIndex((taken) => !taken);
        const span = { batch, lane, sequence, from: at, to: events.length, end: "", slot: slot < 0 ? busy[lane].length : slot };
        busy[lane][span.slot] = true;
        this.slots[lane] = Math.max(this.slots[lane], span.slot + 1);
        open.set(batch, span);
        this.spans[lane].push(span);
      } else if ((kind in ENDS || kind in BACK) && open.has(batch)) {
        const span = Object.assign(open.get(batch), { to: at, end: kind });
        busy[span.lane][span.slot] = false;
        open.delete(batch);
      } else if (lane >= 0 && kind === "muted") this.muted[lane].push({ from: at, to: events.length });
      else if (lane >= 0 && kind === "unmuted" && this.muted[lane].length) this.muted[lane][this.muted[lane].length - 1].to = at;
      applyEvent(state, event);
    });
  }

  static event([time, kind, lane, batch, records, epoch, sequence, attempts, offset, error, node]) {
    return { time, kind, lane, batch, records, epoch, sequence, attempts, offset, error, node };
  }

  // State after event `at`, per lane: batches in flight in the order sent, muted, queued, decided.
  stateAfter(at) {
    const index = Math.min(this.snapshots.length - 1, Math.floor(at / this.every));
    const state = copyLanes(this.snapshots[index]);
    for (let i = index * this.every; i <= at; i++) applyEvent(state, ProducerModel.event(this.data.events[i]));
    return state;
  }
}

function copyLanes(lanes) {
  return lanes.map((lane) => ({ ...lane, flight: new Map(lane.flight), queued: new Map(lane.queued) }));
}

function applyEvent(lanes, event) {
  const lane = lanes[event.lane];
  if (!lane) return;
  const { kind, batch } = event;
  if (kind === "ready" || kind === "drained") lane.queued.set(batch, event);
  else if (kind === "sent") { lane.queued.delete(batch); lane.flight.set(batch, event); }
  else if (kind === "muted") lane.muted = true;
  else if (kind === "unmuted") lane.muted = false;
  else if (kind in BACK) { lane.flight.delete(batch); lane.queued.set(batch, event); }
  else if (kind in ENDS) {
    lane.flight.delete(batch);
    lane.queued.delete(batch);
    if (kind === "acknowledged" || kind === "acknowledged-as-duplicate") lane.done++;
    else lane.failed++;
  }
}

function producerSentence(data, event) {
  const { kind, lane, batch, records, sequence, attempts, offset, error, node } = event;
  const name = lane >= 0 ? laneName(data, lane) : "";
  const which = `Batch ${number(batch)} of ${name} (${plural(records, "record")}${sequence >= 0 ? `, sequence ${number(sequence)}` : ""})`;
  switch (kind) {
    case "ready": return `${which} may be sent.`;
    case "drained": return `${which} is taken out of its queue for a request to node ${node}.`;
    case "muted": return `${name} is muted: nothing more of it is sent until this batch is decided.`;
    case "unmuted": return `${name} flows again.`;
    case "sent": return `${which} is on its way to node ${node}${attempts > 0 ? `, attempt ${attempts + 1}` : ""}.`;
    case "acknowledged": return `${which} is acknowledged${offset >= 0 ? ` at offset ${number(offset)}` : ""}.`;
    case "acknowledged-as-duplicate": return `${which} is acknowledged as a duplicate: the broker had it already.`;
    case "epoch-bump": return "The producer's epoch is raised; sequences start again at 0.";
    default: return `${which}: ${BACK[kind] || ENDS[kind] || kind}${error ? `, ${error}` : ""}.`;
  }
}

// The picture: a line for every batch that is on its way, at most five of an idempotent producer in each lane.
class ProducerTimeline {
  constructor(model, view, onPick) {
    this.model = model;
    this.view = view;
    const label = "Batches on their way, one lane per partition. The slider and the text below tell the same step by step.";
    this.canvas = make("canvas", { role: "img", "aria-label": label });
    this.spacer = make("div", { class: "spacer" });
    this.scroller = make("div", { class: "scroller" }, this.canvas, this.spacer);
    this.element = make("figure", { class: "picture", style: "margin:.6rem 0" }, this.scroller);
    const few = model.data.lanes.length <= WINDOWS;
    this.line = few ? 15 : 4;
    this.least = few ? 24 : 13;
    this.tops = [6];
    model.slots.forEach((slots, lane) => this.tops.push(this.tops[lane] + Math.max(this.least, slots * this.line + 7)));
    this.words = { lanes: model.data.lanes };
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    const pick = (event) => onPick(this.#eventAt(event));
    this.canvas.addEventListener("pointerdown", (event) => { this.canvas.setPointerCapture(event.pointerId); pick(event); });
    this.canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) pick(event); });
  }

  #eventAt(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.floor(this.view.from + ((event.clientX - box.left - this.left) / (box.width - this.left - TAIL)) * (this.view.to - this.view.from));
  }

  draw() {
    const { model, view } = this;
    const width = this.scroller.clientWidth;
    if (width < 50) return;
    const style = getComputedStyle(document.documentElement);
    const full = this.tops[this.tops.length - 1] + 6;
    const height = Math.min(full, Math.max(120, Math.round(window.innerHeight * 0.5)));
    this.scroller.style.maxHeight = `${height}px`;
    this.spacer.style.height = `${full - height}px`;
    const pen = prepareCanvas(this.canvas, width, height);
    pen.font = `${this.line > 8 ? 12 : 10}px ${getComputedStyle(document.body).fontFamily}`;
    const longest = Math.max(...model.data.lanes.map((_, lane) => pen.measureText(laneName(model.data, lane)).width));
    this.left = Math.min(GUTTER_MAX, longest + 28, width * 0.4);
    const x = (at) => this.left + ((width - this.left - TAIL) * (at - view.from)) / (view.to - view.from);
    const offset = this.scroller.scrollTop;
    model.data.lanes.forEach((_, lane) => {
      const y = this.tops[lane] - offset;
      if (y < height && this.tops[lane + 1] - offset > 0) this.#lane(pen, lane, y, this.tops[lane + 1] - this.tops[lane], { x, style });
    });
    pen.fillStyle = style.getPropertyValue("--now");
    if (view.at >= view.from && view.at <= view.to) pen.fillRect(x(view.at), 0, 1.5, height);
  }

  #lane(pen, lane, y, tall, { x, style }) {
    const { model, view, line } = this;
    const colour = accent(style, lane);
    pen.fillStyle = style.getPropertyValue("--ink");
    pen.fillText(fit(pen, laneName(model.data, lane), this.left - 20), 12, y + tall / 2);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, y, pen.canvas.width, tall);
    pen.clip();
    pen.fillStyle = style.getPropertyValue("--quiet");
    for (const { from, to } of model.muted[lane]) if (to >= view.from && from <= view.to) pen.fillRect(x(from), y + tall - 3, Math.max(1, x(to) - x(from)), 2);
    for (const span of model.spans[lane]) {
      if (span.to < view.from || span.from > view.to) continue;
      const again = span.end in BACK;
      const top = y + (tall - model.slots[lane] * line) / 2 + span.slot * line;
      const wide = Math.max(1.5, x(span.to) - x(span.from) - 1);
      pen.globalAlpha = again ? 0.4 : 1;
      pen.fillStyle = colour;
      pen.fillRect(x(span.from), top, wide, line - 1);
      pen.globalAlpha = 1;
      const text = span.sequence >= 0 ? `seq ${number(span.sequence)}` : `batch ${number(span.batch)}`;
      if (line > 8 && wide > pen.measureText(text).width + 8) {
        pen.fillStyle = style.getPropertyValue(again ? "--ink" : "--on");
        pen.fillText(text, x(span.from) + 4, top + line / 2);
      }
    }
    pen.restore();
  }
}

function windowOf(data, words, state, lane) {
  const flying = [...state.flight.values()];
  const slots = Array.from({ length: Math.max(WINDOW, flying.length) }, (_, i) => make("span", { class: flying[i] ? "slot full" : "slot", style: `--c:${laneColour(lane)}` },
    flying[i] ? (flying[i].sequence >= 0 ? `seq ${number(flying[i].sequence)}` : `batch ${flying[i].batch}`) : "\u00a0"));
  const said = `${plural(state.queued.size, "batch", "batches")} waiting, ${number(state.done)} acknowledged${state.failed ? `, ${number(state.failed)} failed` : ""}`;
  return make("div", { class: "why" }, make("p", {}, make("strong", {}, laneName(data, lane)), "  ", make("span", { class: "muted" }, state.muted ? "muted  " : ""), said), make("div", { class: "window5" }, ...slots));
}

// Returns what the page needs: keys of this view, and draw() for a change of theme or size.
function producerView(panel, data) {
  const model = new ProducerModel(data);
  const last = data.events.length - 1;
  const view = { from: 0, to: Math.max(1, data.events.length), at: 0 };
  const slider = make("input", { type: "range", min: "0", max: String(Math.max(0, last)), value: "0", "aria-label": "Event", id: "event" });
  const said = make("p", { role: "status", id: "event-text" });
  const way = make("div", { id: "batch-way" });
  const rows = make("div", { id: "windows" });
  const go = (at) => {
    if (last < 0) return;
    view.at = Math.max(0, Math.min(last, Math.round(at)));
    const wide = view.to - view.from;
    if (view.at < view.from) show(view.at - wide * 0.1, view.at + wide * 0.9);
    else if (view.at > view.to) show(view.at - wide * 0.9, view.at + wide * 0.1);
    describe();
    timeline.draw();
  };
  const timeline = new ProducerTimeline(model, view, go);
  const show = (from, to) => {
    const all = Math.max(1, data.events.length);
    const wide = Math.min(all, Math.max(Math.min(all, 20), to - from));
    view.from = Math.max(0, Math.min(all - wide, from));
    view.to = view.from + wide;
    timeline.draw();
  };
  const zoom = (factor) => show(view.at - (view.at - view.from) * factor, view.at + (view.to - view.at) * factor);
  const describe = () => {
    const event = ProducerModel.event(data.events[view.at]);
    slider.value = view.at;
    said.textContent = `Event ${number(view.at + 1)} of ${number(last + 1)}, ${number(event.time - data.events[0][0])} ms: ${producerSentence(data, event)}`;
    slider.setAttribute("aria-valuetext", said.textContent);
    const steps = model.eventsOf.get(event.batch) || [];
    const items = steps.map((at) => {
      const { kind, error } = ProducerModel.event(data.events[at]);
      const text = `: ${BACK[kind] || ENDS[kind] || kind}${error ? `, ${error}` : ""}`;
      return make("li", at === view.at ? { class: "big", "aria-current": "step" } : {}, make("button", { type: "button", onclick: () => go(at) }, `event ${number(at + 1)}`), text);
    });
    way.replaceChildren(...(items.length ? [make("h3", {}, `The way of batch ${number(event.batch)}`), make("ol", { class: "say" }, ...items)] : []));
    const states = model.stateAfter(view.at);
    const all = states.map((_, lane) => lane);
    const shown = all.length <= WINDOWS ? all : all.filter((lane) => lane === event.lane || states[lane].flight.size || states[lane].muted);
    rows.replaceChildren(...shown.slice(0, 2 * WINDOWS).map((lane) => windowOf(data, timeline.words, states[lane], lane)));
    if (shown.length > 2 * WINDOWS) rows.append(make("p", { class: "none" }, `and ${plural(shown.length - 2 * WINDOWS, "partition")} more with batches on their way`));
    if (shown.length < all.length) rows.append(make("p", { class: "none" }, `${plural(all.length - shown.length, "partition")} with nothing on the way`));
  };
  const button = (text, label, action, more) => make("button", { type: "button", "aria-label": label, onclick: action, ...more }, text);
  const player = make("div", { class: "player" }, button("|◀", "First event", () => go(0)), button("◀", "One event back", () => go(view.at - 1)), button("▶", "One event on", () => go(view.at + 1)), slider,
    make("span", { class: "zoom" }, button("−", "Show more events", () => zoom(1 / 0.6)), button("+", "Show fewer events", () => zoom(0.6)), make("button", { type: "button", onclick: () => show(0, data.events.length) }, "all events")));
  const mark = (kind, text) => make("span", {}, make("i", { class: `k ${kind}` }), text);
  panel.replaceChildren(
    make("p", {}, `${plural(data.events.length, "event")} of ${plural(data.batches, "batch", "batches")}, from left to right. A bar is a batch on its way to the broker and back; those of a partition that are under way together are below each other.`),
    timeline.element,
    make("div", { class: "legend", "aria-hidden": "true" }, mark("run", "on its way"), mark("again", "failed, is sent again"), mark("mute", "the partition is muted")),
    player, said,
    make("div", { class: "cols" }, make("div", {}, make("h2", {}, "On their way: an idempotent producer has at most five batches of a partition there"), rows), way));
  slider.addEventListener("input", () => go(Number(slider.value)));
  new ResizeObserver(() => timeline.draw()).observe(panel);
  go(0);
  return {
    draw: () => timeline.draw(),
    keys: {
      ArrowLeft: (event) => go(view.at - (event.shiftKey ? 10 : 1)),
      ArrowRight: (event) => go(view.at + (event.shiftKey ? 10 : 1)),
      PageUp: () => go(view.at - (view.to - view.from)),
      PageDown: () => go(view.at + (view.to - view.from)),
      Home: () => go(0),
      End: () => go(last),
      "+": () => zoom(0.6),
      "=": () => zoom(0.6),
      "-": () => zoom(1 / 0.6),
      0: () => show(0, data.events.length),
    },
  };
}
