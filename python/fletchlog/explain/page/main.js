// The page: what is shown, the selected poll, keys and clicks.

const story = JSON.parse(document.getElementById("story").textContent);
const $ = (id) => document.getElementById(id);
const models = new Map();
const view = { from: 0, to: 1, poll: 1 };
let shown = [0];
let timelines = [];
let playing = null;
let linking = 0;
let frame = 0;
let producer = null;

const modelOf = (index) => {
  if (!models.has(index)) models.set(index, new Model(story, story.runs[index]));
  return models.get(index);
};
const longest = () => Math.max(...shown.map((index) => modelOf(index).polls));

function draw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => {
    timelines.forEach((timeline) => timeline.draw());
    if (producer) producer.draw();
  });
}

function setView(from, to) {
  const all = longest();
  const wide = Math.min(all, Math.max(Math.min(all, 4), to - from));
  view.from = Math.max(0, Math.min(all - wide, from));
  view.to = view.from + wide;
  draw();
}

function goTo(poll) {
  const all = longest();
  view.poll = Math.max(1, Math.min(all, Math.round(poll)));
  const wide = view.to - view.from;
  if (view.poll - 1 < view.from) setView(view.poll - 1 - wide * 0.1, view.poll - 1 + wide * 0.9);
  else if (view.poll > view.to) setView(view.poll - wide * 0.9, view.poll + wide * 0.1);
  const slider = $("step");
  slider.value = view.poll;
  slider.setAttribute("aria-valuetext", `Poll ${view.poll} of ${all}`);
  $("where").textContent = `poll ${number(view.poll)} of ${number(all)}`;
  const details = $("details");
  details.classList.toggle("two", shown.length > 1);
  const polls = shown.map((index) => [modelOf(index), Math.min(view.poll, modelOf(index).polls)]);
  details.replaceChildren(...polls.map(([model, poll]) => pollPanel(model, poll)));
  timelines.forEach((timeline, i) => timeline.showAll(polls[i][0].lanesOf(polls[i][1])));
  clearTimeout(linking);
  // a link to this poll, once it stays: browsers limit how often
  linking = setTimeout(() => history.replaceState(null, "", `#poll=${view.poll}`), 300);
  $("spoken").textContent = polls.map(([model, poll]) => spoken(model, poll)).join(" ");
  draw();
}

function show(indices) {
  shown = indices.filter((index, i) => index >= 0 && indices.indexOf(index) === i);
  timelines = shown.map((index) => new Timeline(modelOf(index), view, goTo));
  for (const timeline of timelines) timeline.onView = setView;
  const pictures = $("pictures");
  pictures.classList.toggle("two", shown.length > 1);
  pictures.replaceChildren(...timelines.map((timeline) => timeline.element));
  $("step").max = longest();
  const parts = $("parts");
  parts.replaceChildren();
  if (shown.length > 1) {
    const parting = story.parts[`${shown[0]}-${shown[1]}`] || story.parts[`${shown[1]}-${shown[0]}`];
    if (parting) parts.append("They part at ", make("button", { type: "button", onclick: () => goTo(parting.poll) }, `poll ${number(parting.poll)}`), `: ${parting.text}`);
    else parts.append("Both decide the same, to the end.");
  }
  fairnessTable($("fairness"), story, shown);
  $("order").replaceChildren(...shown.map((index) => orderPanel(story, story.runs[index])));
  setView(view.from, view.to);
  goTo(view.poll);
}

function find(text) {
  const box = $("found");
  box.hidden = false;
  box.style.removeProperty("--c");
  const query = parseQuery(story, text);
  if (query.error) {
    box.replaceChildren(query.error);
    return;
  }
  const model = modelOf(shown[0]);
  const link = (poll) => make("button", { type: "button", onclick: () => goTo(poll) }, `poll ${number(poll)}`);
  if (query.lanes) {
    const list = make("ul", {});
    for (const lane of query.lanes) {
      const over = model.around(lane, query.offset).over;
      list.append(make("li", {}, `${laneName(story, lane)}: `, ...(over ? ["handed out in ", link(over.poll)] : ["not handed out"])));
    }
    box.replaceChildren(make("strong", {}, `Offset ${number(query.offset)} of each partition`), list);
    return;
  }
  const name = laneName(story, query.lane);
  box.style.setProperty("--c", laneColour(query.lane));
  const why = whyNone(story, query.lane, query.offset);
  const around = model.around(query.lane, query.offset);
  const dense = around.over && around.over.records === around.over.last - around.over.first + 1;
  if (!around.over || (why && !dense)) {
    box.replaceChildren(make("strong", {}, `${name} @ ${number(query.offset)}`), make("p", {}, noRecord(story, query, why, around)), make("p", {}, ...passed(around, name, link)));
    const at = around.over || around.behind || around.before;
    if (at) goTo(at.poll);
    for (const timeline of timelines) timeline.showAll([query.lane]);
    return;
  }
  const way = model.way(query.lane, query.offset);
  const item = (poll, text) => make("li", {}, "In ", link(poll), text);
  const list = make("ol", {});
  if (way.ask) list.append(item(way.ask.poll, `, node ${way.ask.node} is asked for ${name} from ${number(way.ask.offset)}.`));
  if (way.answer) {
    const { part, place, of } = way.answer;
    list.append(item(way.answer.poll, `, its answer is read: ${plural(part[2], "record")} of ${name}, queued ${place + 1} of ${of}.`));
  }
  const waited = way.answer ? way.take.poll - way.answer.poll : 0;
  list.append(item(way.take.poll, `, ${waited ? `after waiting ${plural(waited, "poll")} in the queue, ` : ""}it is handed out with ${number(way.take.first)} to ${number(way.take.last)}.`));
  box.replaceChildren(make("strong", {}, `${name} @ ${number(query.offset)}`), list);
  goTo(way.take.poll);
  for (const timeline of timelines) timeline.showAll([query.lane]);
}

function play(on) {
  clearInterval(playing);
  playing = on ? setInterval(() => { if (view.poll >= longest()) play(false); else goTo(view.poll + 1); }, 350) : null;
  $("play").textContent = on ? "❚❚ pause" : "▶︎ play";
  $("play").setAttribute("aria-pressed", String(on));
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  draw();
}

function zoom(factor) {
  const middle = view.poll - 0.5;
  setView(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
}

function selectTab(name) {
  for (const tab of ["consumer", "producer"]) {
    const on = tab === name;
    $(tab).hidden = !on;
    $(`tab-${tab}`).setAttribute("aria-selected", String(on));
    $(`tab-${tab}`).tabIndex = on ? 0 : -1;
    for (const element of document.querySelectorAll(`.for-${tab}`)) element.hidden = !on;
  }
  $("title").textContent = name === "producer" ? "What happens to each batch?" : "Which partition does each poll() return?";
  document.querySelector(".skip").href = name === "producer" ? "#event" : "#step";
  play(false);
  draw();
}

const keys = {
  ArrowLeft: (event) => goTo(view.poll - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => goTo(view.poll + (event.shiftKey ? 10 : 1)),
  PageUp: () => goTo(view.poll - (view.to - view.from)),
  PageDown: () => goTo(view.poll + (view.to - view.from)),
  Home: () => goTo(1),
  End: () => goTo(longest()),
  "+": () => zoom(0.6),
  "=": () => zoom(0.6),
  "-": () => zoom(1 / 0.6),
  0: () => setView(0, longest()),
  n: () => goTo(modelOf(shown[0]).nextAsk(view.poll, 1) ?? view.poll),
  p: () => goTo(modelOf(shown[0]).nextAsk(view.poll, -1) ?? view.poll),
  t: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  "/": () => $("query").focus(),
  " ": () => play(!playing),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = event.target;
  if (at.matches("input[type=search], select")) return;
  // buttons keep the space bar, tabs the arrows
  if ((at.matches("button, summary") && event.key === " ") || (at.matches("[role=tab]") && event.key.startsWith("Arrow"))) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = $("producer").hidden || key === "t" ? keys[key] : producer.keys[key];
  if (!action) return;
  event.preventDefault();
  action(event);
});

function start() {
  $("subtitle").textContent = story.subtitle;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  story.runs.forEach((run, i) => {
    $("left").append(new Option(run.title, i));
    $("right").append(new Option(run.title, i));
  });
  $("right").prepend(new Option("nothing", -1));
  const fair = story.runs.findIndex((run, i) => i > 0 && run.order !== story.runs[0].order);
  const beside = story.runs.length > 1 ? Math.max(1, fair) : -1;
  $("left").value = 0;
  $("right").value = beside;
  const choose = () => show([Number($("left").value), Number($("right").value)]);
  $("left").addEventListener("change", choose);
  $("right").addEventListener("change", choose);
  document.querySelector(".choose").hidden = story.runs.length < 2;
  $("search").addEventListener("submit", (event) => { event.preventDefault(); find($("query").value); });
  if (story.lanes.length) $("query").placeholder = `${laneName(story, story.lanes.length - 1)} @ 10`;
  $("query").size = Math.min(40, $("query").placeholder.length + 3);
  $("step").addEventListener("input", () => goTo(Number($("step").value)));
  const on = (id, action) => $(id).addEventListener("click", action);
  on("first", () => goTo(1));
  on("back", () => goTo(view.poll - 1));
  on("next", () => goTo(view.poll + 1));
  on("play", () => play(!playing));
  on("in", () => zoom(0.6));
  on("out", () => zoom(1 / 0.6));
  on("all", () => setView(0, longest()));
  on("theme", keys.t);
  on("tab-consumer", () => selectTab("consumer"));
  on("tab-producer", () => selectTab("producer"));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = $("consumer").hidden ? "consumer" : "producer";
    selectTab(other);
    $(`tab-${other}`).focus();
  });
  if (story.producer) {
    $("tab-producer").hidden = false;
    producer = producerView($("producer"), story.producer);
    if (!story.runs.length) {
      $("tab-consumer").hidden = true;
      selectTab("producer");
      return;
    }
  }
  const linked = () => Number(/^#poll=(\d+)$/.exec(location.hash)?.[1] ?? 1);
  view.poll = linked();
  show([0, beside]);
  setView(0, longest());
  window.addEventListener("hashchange", () => goTo(linked()));
  new ResizeObserver(draw).observe($("pictures"));
}

start();
