// What happened, made ready to be drawn and stepped through. No document here: the tests run this file alone.

const SNAPSHOT_EVERY = 64;

function laneName(story, lane) {
  return typeof lane === "number" ? `${story.lanes[lane][0]}-${story.lanes[lane][1]}` : lane;
}

function emptyState() {
  return { queue: [], flight: new Map(), left: new Map() };
}

function copyState(state) {
  return {
    queue: state.queue.map((entry) => ({ ...entry })),
    flight: new Map(state.flight),
    left: new Map([...state.left].map(([why, lanes]) => [why, new Set(lanes)])),
  };
}

// One step changes the state; the queue holds at most one entry of a lane, because what is buffered is not asked for again.
function applyStep(state, step, poll) {
  const entryOf = (lane) => state.queue.find((entry) => entry.lane === lane);
  switch (step[0]) {
    case "ask":
      state.flight.set(step[1], { poll, full: step[2] > 0, lanes: step[3], forgotten: step[4] });
      break;
    case "answer":
      state.flight.delete(step[1]);
      for (const [lane, offset, records, bytes, , error] of step[3]) {
        state.queue.push({ lane, from: offset, next: offset, total: records, left: records, bytes, error, poll });
      }
      break;
    case "skip": {
      const lanes = state.left.get(step[1]) || new Set();
      step[2].forEach((lane) => lanes.add(lane));
      step[3].forEach((lane) => lanes.delete(lane));
      state.left.set(step[1], lanes);
      break;
    }
    case "take": {
      const entry = entryOf(step[1]);
      if (entry) {
        entry.left = Math.max(0, entry.left - step[4]);
        entry.next = step[3] + 1;
      }
      break;
    }
    case "drained":
    case "drop":
      state.queue = state.queue.filter((entry) => entry.lane !== step[1]);
      break;
    case "park": {
      const entry = entryOf(step[1]);
      if (entry) state.queue = [...state.queue.filter((other) => other !== entry), entry];
      break;
    }
    case "error":
      if (step[2] >= 0) state.flight.delete(step[2]);
      break;
    default:
  }
}

class Model {
  constructor(story, run) {
    this.story = story;
    this.run = run;
    this.polls = run.polls.length - 1;
    this.runsOf = story.lanes.map(() => []);
    this.waitsOf = story.lanes.map(() => []);
    this.asksOf = story.lanes.map(() => []);
    this.ribbon = [];
    this.asks = [];
    this.snapshots = [];
    this.total = 0;
    this.#read();
  }

  #read() {
    const state = emptyState();
    const since = new Map();
    // records still to be taken; a fetch of which none is left keeps its place in the queue, but nothing waits in it
    const leftOf = new Map();
    this.run.polls.forEach((steps, poll) => {
      if (poll % SNAPSHOT_EVERY === 0) this.snapshots.push(copyState(state));
      const all = steps.reduce((sum, step) => sum + (step[0] === "take" ? step[4] : 0), 0);
      let done = 0;
      const left = Math.max(0, poll - 1);
      const x = () => left + (all ? done / all : 0);
      for (const step of steps) {
        if (step[0] === "take") {
          const start = x();
          done += step[4];
          this.total += step[4];
          this.#take(step, poll, start, x());
          leftOf.set(step[1], (leftOf.get(step[1]) ?? 0) - step[4]);
          if (since.has(step[1]) && leftOf.get(step[1]) <= 0) {
            this.waitsOf[step[1]].push([since.get(step[1]), x()]);
            since.delete(step[1]);
          }
        } else if (step[0] === "ask") {
          this.asks.push({ poll, x: x(), node: step[1], lanes: step[3] });
          for (const [lane] of step[3]) this.asksOf[lane].push(x());
        } else if (step[0] === "answer") {
          for (const [lane, , records] of step[3]) {
            if (records === 0) continue;
            since.set(lane, x());
            leftOf.set(lane, records > 0 ? records : Infinity);
          }
        } else if ((step[0] === "drained" || step[0] === "drop") && since.has(step[1])) {
          this.waitsOf[step[1]].push([since.get(step[1]), x()]);
          since.delete(step[1]);
        }
        applyStep(state, step, poll);
      }
    });
    for (const [lane, from] of since) this.waitsOf[lane].push([from, this.polls]);
  }

  #take(step, poll, x0, x1) {
    const [, lane, first, last, records] = step;
    const before = this.ribbon.length ? this.ribbon[this.ribbon.length - 1] : null;
    if (before && before.lane === lane) {
      Object.assign(before, { x1, last, p1: poll, records: before.records + records });
      return;
    }
    const stretch = { lane, x0, x1, first, last, p0: poll, p1: poll, records };
    this.ribbon.push(stretch);
    this.runsOf[lane].push(stretch);
  }

  // Whose records poll `poll` hands out, in that order.
  lanesOf(poll) {
    return (this.run.polls[poll] || []).filter((step) => step[0] === "take").map((step) => step[1]);
  }

  // The state after poll `poll`.
  stateAfter(poll) {
    const index = Math.floor(poll / SNAPSHOT_EVERY);
    const state = copyState(this.snapshots[Math.min(index, this.snapshots.length - 1)]);
    for (let p = index * SNAPSHOT_EVERY; p <= poll && p <= this.polls; p++) {
      for (const step of this.run.polls[p]) applyStep(state, step, p);
    }
    return state;
  }

  // The partitions left out of requests in this poll: [[reason, [lanes]]], with those that are asked for again before its end.
  leftOut(poll) {
    const state = this.stateAfter(poll - 1);
    const found = new Map();
    const sorted = (why) => [...(state.left.get(why) || [])].sort((a, b) => a - b);
    for (const step of this.run.polls[poll] || []) {
      applyStep(state, step, poll);
      if (step[0] === "skip" && step[2].length) found.set(step[1], sorted(step[1]));
    }
    for (const why of state.left.keys()) if (!found.has(why)) found.set(why, sorted(why));
    return [...found];
  }

  nextAsk(poll, direction) {
    const polls = this.asks.map((ask) => ask.poll).filter((p) => p > 0);
    return direction > 0 ? polls.find((p) => p > poll) : polls.reverse().find((p) => p < poll);
  }

  // The way of one offset: asked for, answered, handed out. Null if no poll returned it.
  way(lane, offset) {
    let ask = null;
    let answer = null;
    for (let poll = 0; poll <= this.polls; poll++) {
      for (const step of this.run.polls[poll]) {
        if (step[0] === "ask") {
          const part = step[3].find(([l]) => l === lane);
          if (part) ask = { poll, node: step[1], offset: part[1] };
        } else if (step[0] === "answer") {
          const place = step[3].findIndex(([l]) => l === lane);
          if (place >= 0 && step[3][place][2] !== 0) answer = { poll, node: step[1], place, of: step[3].length, part: step[3][place], ask };
        } else if (step[0] === "take" && step[1] === lane && step[2] <= offset && offset <= step[3]) {
          return { ask: answer ? answer.ask : ask, answer, take: { poll, first: step[2], last: step[3], records: step[4] } };
        }
      }
    }
    return null;
  }

  // What the polls did around an offset: the stretch that went over it, or the last before it and the first behind it.
  around(lane, offset) {
    let over = null;
    let before = null;
    let behind = null;
    this.run.polls.forEach((steps, poll) => {
      for (const [kind, l, first, last, records] of steps) {
        if (kind !== "take" || l !== lane) continue;
        const take = { poll, first, last, records };
        if (first <= offset && offset <= last) over ??= take;
        else if (last < offset) before = take;
        else behind ??= take;
      }
    });
    return { over, before, behind };
  }
}

// Whether the log has a record at an offset: null if it has one, "unknown" where there is only a trace, else why not.
function whyNone(story, lane, offset) {
  const [start, end] = story.ends[lane];
  if (start === undefined) return "unknown";
  if (offset < start) return "deleted";
  if (offset >= end) return "unwritten";
  const gaps = story.gaps[lane];
  if (!gaps) return "unknown";
  let low = 0;
  let high = gaps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (gaps[middle][1] < offset) low = middle + 1;
    else high = middle;
  }
  return low < gaps.length && gaps[low][0] <= offset ? gaps[low][2] : null;
}

// "orders-2 @ 1234", "orders-2 1234", "orders-2:1234", or an offset alone where there is one lane.
// A partition and an offset: `orders-2 @ 10`; where there is one topic also `2 @ 10`, and `10`, which every partition may have.
function parseQuery(story, text) {
  const example = `${laneName(story, 0)} @ 10`;
  const match = /^\s*(?:(?:(.+?)-)?(\d+)\s*[@: ]\s*)?(\d[\d,.]*)\s*$/.exec(text);
  if (!match) return { error: `Write a partition and an offset, like ${example}.` };
  const [, topic, partition] = match;
  const offset = Number(match[3].replace(/[,.]/g, ""));
  if (topic === undefined && story.topics.length > 1) return { error: `Which topic? Write it like ${laneName(story, 0)} @ ${offset}.` };
  const lanes = story.lanes.map((_, lane) => lane);
  if (partition === undefined) return lanes.length === 1 ? { lane: 0, offset } : { lanes, offset };
  const wanted = topic ?? story.topics[0];
  const lane = story.lanes.findIndex(([name, number]) => name === wanted && number === Number(partition));
  return lane < 0 ? { error: `There is no partition ${wanted}-${partition} here.` } : { lane, offset };
}
