// The producer's view: every batch from the queue to its answer, muted partitions, and the window of five.

const WINDOW = 5;
const ENDS = { acknowledged: "acknowledged", "acknowledged-as-duplicate": "acknowledged as a duplicate", failed: "failed", expired: "expired", split: "split" };
const BACK = { retried: "to be sent again", "re-enqueued": "back in its queue", "refused-out-of-order": "refused: out of order" };

class ProducerModel {
  constructor(data) {
    this.data = data;
    this.spans = data.lanes.map(() => []);
    const open = new Map();
    data.events.forEach((event, at) => {
      const { kind, lane, batch, sequence } = ProducerModel.event(event);
      if (kind === "sent") {
        const span = { batch, lane, sequence, from: at, to: data.events.length, end: "" };
        open.set(batch, span);
        this.spans[lane].push(span);
      } else if ((kind in ENDS || kind in BACK) && open.has(batch)) {
        Object.assign(open.get(batch), { to: at, end: kind });
        open.delete(batch);
      }
    });
  }

  static event([time, kind, lane, batch, records, epoch, sequence, attempts, offset, error, node]) {
    return { time, kind, lane, batch, records, epoch, sequence, attempts, offset, error, node };
  }

  // State after event `at`, per lane: batches in flight in the order sent, muted, queued, decided.
  stateAfter(at) {
    const lanes = this.data.lanes.map(() => ({ flight: new Map(), queued: new Map(), muted: false, done: 0, failed: 0 }));
    for (let i = 0; i <= at; i++) {
      const event = ProducerModel.event(this.data.events[i]);
      const lane = lanes[event.lane];
      if (!lane) continue;
      if (event.kind === "ready" || event.kind === "drained") lane.queued.set(event.batch, event);
      else if (event.kind === "sent") { lane.queued.delete(event.batch); lane.flight.set(event.batch, event); }
      else if (event.kind === "muted") lane.muted = true;
      else if (event.kind === "unmuted") lane.muted = false;
      else if (event.kind in BACK) { lane.flight.delete(event.batch); lane.queued.set(event.batch, event); }
      else if (event.kind in ENDS) {
        lane.flight.delete(event.batch);
        lane.queued.delete(event.batch);
        if (event.kind.startsWith("acknowledged")) lane.done++;
        else lane.failed++;
      }
    }
    return lanes;
  }
}

function producerSentence(data, event) {
  const { kind, lane, batch, records, sequence, attempts, offset, error, node } = event;
  const name = lane >= 0 ? `${data.lanes[lane][0]}-${data.lanes[lane][1]}` : "";
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

function producerView(panel, data) {
  const model = new ProducerModel(data);
  const last = data.events.length - 1;
  const words = { topics: [...new Set(data.lanes.map(([topic]) => topic))], lanes: data.lanes };
  const canvas = make("canvas", { role: "img", "aria-label": "Batches on their way, one lane per partition. The slider and the text below tell the same step by step." });
  const slider = make("input", { type: "range", min: "0", max: String(Math.max(0, last)), value: "0", "aria-label": "Event", id: "event" });
  const said = make("p", { role: "status", id: "event-text" });
  const rows = make("div", { id: "windows" });
  const row = data.lanes.length <= 12 ? 24 : 14;
  panel.replaceChildren(
    make("p", {}, `${plural(data.events.length, "event")} of ${plural(data.batches, "batch", "batches")}. A bar is a batch on its way to the broker and back, from event to event; a pale one failed and is sent again.`),
    make("figure", { class: "picture", style: "margin:.6rem 0" }, make("div", { class: "scroller" }, canvas)),
    make("div", { class: "player" }, slider), said, make("h2", {}, "On their way: an idempotent producer has at most five batches of a partition there"), rows);

  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    const width = panel.clientWidth - 2;
    if (width < 50) return;
    const ratio = window.devicePixelRatio || 1;
    const height = data.lanes.length * row + 10;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.cssText = `width:${width}px;height:${height}px;position:static`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.textBaseline = "middle";
    pen.font = `${row > 20 ? 12 : 10}px ${getComputedStyle(document.body).fontFamily}`;
    const left = 150;
    const x = (at) => left + ((width - left - 14) * at) / Math.max(1, data.events.length);
    data.lanes.forEach(([topic, partition], lane) => {
      const y = 6 + lane * row;
      pen.fillStyle = style.getPropertyValue("--ink");
      pen.fillText(fit(pen, `${topic}-${partition}`, left - 24), 12, y + row / 2);
      pen.fillStyle = accent(style, words, lane);
      for (const span of model.spans[lane]) {
        const again = span.end in BACK;
        pen.globalAlpha = again ? 0.4 : 1;
        const wide = Math.max(1.5, x(span.to) - x(span.from) - 1);
        pen.fillRect(x(span.from), y + 3, wide, row - 7);
        const text = span.sequence >= 0 ? `seq ${number(span.sequence)}` : `batch ${number(span.batch)}`;
        if (row > 20 && !again && wide > pen.measureText(text).width + 8) {
          pen.fillStyle = style.getPropertyValue("--on");
          pen.fillText(text, x(span.from) + 4, y + row / 2 - 0.5);
          pen.fillStyle = accent(style, words, lane);
        }
      }
      pen.globalAlpha = 1;
    });
    pen.fillStyle = style.getPropertyValue("--now");
    pen.fillRect(x(Number(slider.value)), 0, 1.5, height);
  };
  const go = () => {
    const at = Number(slider.value);
    if (last < 0) return;
    const event = ProducerModel.event(data.events[at]);
    said.textContent = `Event ${number(at + 1)} of ${number(last + 1)}, ${number(event.time - data.events[0][0])} ms: ${producerSentence(data, event)}`;
    slider.setAttribute("aria-valuetext", said.textContent);
    const states = model.stateAfter(at);
    rows.replaceChildren(...states.map((state, lane) => {
      const name = `${data.lanes[lane][0]}-${data.lanes[lane][1]}`;
      const flying = [...state.flight.values()];
      const slots = Array.from({ length: Math.max(WINDOW, flying.length) }, (_, i) => make("span", { class: flying[i] ? "slot full" : "slot", style: `--c:${topicColour(words, lane)}` },
        flying[i] ? (flying[i].sequence >= 0 ? `seq ${number(flying[i].sequence)}` : `batch ${flying[i].batch}`) : "\u00a0"));
      return make("div", { class: "why" }, make("p", {}, make("strong", {}, name), "  ", make("span", { class: "muted" }, state.muted ? "muted  " : ""),
        `${plural(state.queued.size, "batch", "batches")} waiting, ${number(state.done)} acknowledged${state.failed ? `, ${number(state.failed)} failed` : ""}`), make("div", { class: "window5" }, ...slots));
    }));
    draw();
  };
  slider.addEventListener("input", go);
  document.addEventListener("keydown", (event) => {
    if (panel.hidden || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, [role=tab]")) return;
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -25, PageDown: 25, Home: -last, End: last }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    slider.value = Number(slider.value) + move * (event.shiftKey ? 10 : 1);
    go();
  });
  new ResizeObserver(draw).observe(panel);
  go();
}
