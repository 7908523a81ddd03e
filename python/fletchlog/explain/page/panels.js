// The text about one poll: what happened, the queue, requests under way, partitions left out and why.

const CHIPS = 24;
const number = (n) => n.toLocaleString("en");
const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const laneColour = (lane) => `var(--t${lane % ACCENTS})`;

// The same as a background of an element.
function laneFill(lane) {
  const colour = laneColour(lane);
  const ink = `color-mix(in srgb, var(--ink) ${100 * STRIPE_ALPHA}%, ${colour})`;
  const parts = stripesOf(lane).map((top) => `${colour} ${100 * top}%, ${ink} ${100 * top}% ${100 * (top + STRIPE)}%, ${colour} ${100 * (top + STRIPE)}%`);
  return parts.length ? `linear-gradient(${parts.join(", ")})` : colour;
}

function chips(story, lanes) {
  const chip = (lane) => make("span", { class: "chip", style: `--c:${laneColour(lane)}` }, laneName(story, lane));
  const box = make("div", { class: "chips" }, ...lanes.slice(0, CHIPS).map(chip));
  if (lanes.length > CHIPS) {
    const rest = make("details", { class: "more" }, make("summary", {}, `and ${lanes.length - CHIPS} more`));
    rest.addEventListener("toggle", () => { if (rest.children.length === 1) rest.append(make("div", { class: "chips" }, ...lanes.slice(CHIPS).map(chip))); });
    box.append(rest);
  }
  return box;
}

// One step as a sentence; null where the panels below show it.
function sentence(story, step) {
  const name = (lane) => laneName(story, lane);
  const some = (lanes) => (lanes.length <= 6 ? lanes.join(", ") : `${lanes.slice(0, 5).join(", ")} and ${lanes.length - 5} more`);
  const because = (text) => (text ? `: ${text}` : "");
  switch (step[0]) {
    case "call":
      return `The program calls ${step[1]}(${some(step[2].map(([lane, offset]) => name(lane) + (offset >= 0 ? ` at ${number(offset)}` : "")))}${step[3] >= 0 ? `, leader epoch ${step[3]}` : ""}).`;
    case "order":
      return `It is assigned ${plural(step[1].length, "partition")}, asked for in the order ${some(step[1].map(name))}.`;
    case "ask": {
      const wanted = step[3].length ? some(step[3].map(([lane, offset]) => `${name(lane)} from ${number(offset)}`)) : "the same again";
      const forget = step[4].length ? ` The broker may forget ${some(step[4].map(name))}: still buffered, so not wanted now.` : "";
      return `A ${step[2] > 0 ? "full fetch" : "fetch (only what changed)"} goes to node ${step[1]} for ${wanted}.${forget}`;
    }
    case "answer": {
      const parts = step[3].map(([lane, , records]) => name(lane) + (records > 0 ? ` (${number(records)})` : " (empty)"));
      return `The answer of node ${step[1]} is read${because(step[4])}; ${parts.length ? `to the end of the queue go ${some(parts)}` : "it brings nothing"}.`;
    }
    case "take":
      return `${plural(step[4], "record")} of ${name(step[1])}, offsets ${number(step[2])} to ${number(step[3])}, ${step[4] === 1 ? "is" : "are"} handed out.`;
    case "late":
      return `${plural(step[2], "record")} of ${name(step[1])} ${step[2] === 1 ? "is" : "are"} late: older than one handed out before.`;
    case "drained":
      return `${name(step[1])} is used up${because(step[2])}; the next in the queue has its turn.`;
    case "rotate":
      return `${name(step[1])} goes behind all others in the order of requests${because(step[2])}.`;
    case "park":
      return `${name(step[1])} is paused: what was fetched of it goes to the end of the queue.`;
    case "drop":
      return `What was fetched of ${name(step[1])} is thrown away${because(step[2])}.`;
    case "place":
      return `Position of ${name(step[1])}: ${step[3]}${step[2] >= 0 ? `, ${number(step[2])}` : ""}.`;
    case "error":
      if (step[1] < 0 && step[2] < 0) return `${step[3][0].toUpperCase()}${step[3].slice(1)}.`;
      return `Error at ${step[1] >= 0 ? name(step[1]) : `node ${step[2]}`}${because(step[3])}.`;
    case "return":
      return step[1] === 0 ? "Nothing is returned." : null;
    default:
      return null;
  }
}

function happenings(story, steps) {
  const sentences = steps.map((step) => [step[0], sentence(story, step)]).filter(([, text]) => text);
  // positions of many partitions are looked up at once
  const places = sentences.filter(([kind]) => kind === "place");
  if (places.length <= 4) return sentences;
  const together = ["place", `The positions of ${places.length} partitions are looked up.`];
  return sentences.flatMap((entry) => (entry[0] !== "place" ? [entry] : entry === places[0] ? [together] : []));
}

function pollPanel(model, poll) {
  const { story } = model;
  const steps = [...(poll === 1 ? model.run.polls[0] : []), ...(model.run.polls[poll] || [])];
  const after = model.stateAfter(poll);
  const taken = steps.filter((step) => step[0] === "take").reduce((sum, step) => sum + step[4], 0);
  const list = make("ol", { class: "say" });
  for (const [kind, text] of happenings(story, steps)) list.append(make("li", kind === "take" ? { class: "big" } : {}, text));
  if (!list.children.length) list.append(make("li", {}, "Nothing happens."));
  return make("section", { class: "poll" },
    make("h2", {}, `Poll ${number(poll)} returns ${plural(taken, "record")}`, ...(model.run.title ? [" ", small(model.run.title)] : [])),
    make("div", { class: "cols" },
      make("div", {}, make("h3", {}, "What happens"), list, make("h3", {}, "Left out of requests, and why"), leftOut(model, poll)),
      make("div", {}, make("h3", {}, "The queue afterwards"), queue(story, after), make("h3", {}, "Under way"), flight(story, after))));
}

// The same in one line, for screen readers.
function spoken(model, poll) {
  const taken = (model.run.polls[poll] || []).filter((step) => step[0] === "take");
  const parts = taken.slice(0, 3).map((step) => `${plural(step[4], "record")} of ${laneName(model.story, step[1])}`);
  return `${model.run.name}, poll ${number(poll)} returns ${parts.join(", ") || "nothing"}${taken.length > 3 ? ` and ${plural(taken.length - 3, "partition")} more` : ""}.`;
}

function leftOut(model, poll) {
  const found = model.leftOut(poll).filter(([, lanes]) => lanes.length);
  if (!found.length) return make("p", { class: "none" }, "Nobody.");
  return make("div", {}, ...found.map(([why, lanes]) => make("div", { class: "why" }, make("p", {}, `${plural(lanes.length, "partition")}: ${why}`), chips(model.story, lanes))));
}

function queue(story, state) {
  const full = state.queue.filter((entry) => entry.total !== 0);
  const empty = state.queue.length - full.length;
  if (!state.queue.length) return make("p", { class: "none" }, "Empty: the next poll has to wait for an answer.");
  const list = make("ol", { class: "queue" });
  for (const entry of full.slice(0, CHIPS)) {
    const share = entry.total > 0 ? (100 * entry.left) / entry.total : 0;
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i", { style: `width:${share}%;background:${laneFill(entry.lane)}` }));
    list.append(make("li", {}, make("span", { class: "name" }, laneName(story, entry.lane)), bar, make("span", { class: "n" }, `${number(entry.left)} of ${number(entry.total)} left`)));
  }
  const box = make("div", {}, list);
  if (full.length > CHIPS) box.append(make("p", { class: "none" }, `and ${plural(full.length - CHIPS, "partition")} more behind them`));
  if (empty) box.append(make("p", { class: "none" }, `${plural(empty, "empty answer")} in between; each keeps its partition out of requests until its turn`));
  return box;
}

function flight(story, state) {
  if (!state.flight.size) return make("p", { class: "none" }, "No request.");
  return make("div", {}, ...[...state.flight].map(([node, ask]) => make("div", { class: "why" },
    make("p", {}, `To node ${node}, sent in poll ${number(ask.poll)}${ask.lanes.length ? "" : ": nothing new on the wire"}`), chips(story, ask.lanes.map(([lane]) => lane)))));
}

// Why there is no record at an offset that was searched for, or why no poll returned it.
function noRecord(story, { lane, offset }, why, { over, behind }) {
  const [start, end] = story.ends[lane];
  switch (why) {
    case "deleted":
      return `There is no record at this offset any more: the log starts at ${number(start)}.`;
    case "unwritten":
      return `There is no record at this offset yet: the next one to be written is ${number(end)}.`;
    case "compacted":
      return "There is no record at this offset: compaction has removed it.";
    case "control":
      return "There is no record at this offset: it is the marker with which a transaction ended, a control record. No consumer is given one.";
    case "aborted":
      return "The record at this offset belongs to a transaction that was aborted: read_committed passes over it.";
    case "open":
      return "A transaction was open at this offset or before it: read_committed reads no further.";
    case "unknown":
      if (over) return "Not every offset in between has a record. Which ones have, a saved trace does not tell: explain the directory to know.";
      return "No poll returned this offset. Whether there is a record, a saved trace does not tell: explain the directory to know.";
    default:
      return behind ? "No poll returned this offset: the position was set behind it." : "These polls did not come to this offset.";
  }
}

// The polls that passed an offset without returning it.
function passed({ over, before, behind }, name, link) {
  if (over) return [link(over.poll), ` went over it: it handed out ${plural(over.records, "record")} of ${name}, offsets ${number(over.first)} to ${number(over.last)}.`];
  const last = before ? [link(before.poll), ` handed out ${name} up to ${number(before.last)}`] : [];
  const next = behind ? [link(behind.poll), ` ${before ? "went on" : "began"} at ${number(behind.first)}`] : [];
  if (!before && !behind) return [`No poll returned a record of ${name}.`];
  return [...last, ...(before && behind ? [", "] : []), ...next, behind ? "." : "; no record of it came after that."];
}

function orderPanel(story, run) {
  const rows = run.places.map(([lane, bucket], i) => make("tr", {}, make("td", {}, `${i + 1}.  ${laneName(story, lane)}`), make("td", {}, run.nodes[lane] < 0 ? "" : `node ${run.nodes[lane]}`), make("td", {}, bucket === null ? "" : String(bucket))));
  const head = make("tr", {}, make("th", {}, "Partition"), make("th", {}, "Leader"), make("th", {}, run.buckets === null ? "" : `Bucket of ${run.buckets}`));
  return make("div", {}, make("p", {}, run.why), make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
}

function fairnessTable(table, story, shown) {
  const heads = ["Order", "Polls", "Records", "Runs", "Typical run", "Longest run", "Jain's index", "Worst wait, polls", "Worst wait, records"];
  const rows = story.runs.map((run, i) => {
    const f = run.fairness;
    const cells = [run.title, f.polls, f.records, f.runs, f.typical_run, f.longest_run, f.jain === null ? "" : f.jain.toFixed(3), f.worst_wait_polls, f.worst_wait_records];
    return make("tr", shown.includes(i) ? { class: "shown" } : {}, ...cells.map((cell) => make("td", {}, typeof cell === "number" ? number(cell) : cell ?? "")));
  });
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", { scope: "col" }, h)))), make("tbody", {}, ...rows));
}
