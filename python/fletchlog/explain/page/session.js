// The page of a session: findings, clients and groups as lists, a time line, and requests, which are unpacked when they are shown.
// Everything that clients have sent is put into the page as text, never as markup.

const story = JSON.parse(document.getElementById("story").textContent);
const $ = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const chunks = new Map();
const ROW = 22, TOP = 34, NAMES = 190, TAIL = 14;
// so many chunks are unpacked for the part of the time line that is shown, and of so many requests each is drawn
const MOST_CHUNKS = 25, MOST_DRAWN = 4000;
const SHORTEST = 200;
const span = Math.max(1, story.last_us - story.first_us);
// what the time line shows, us
const view = { from: story.first_us, to: story.first_us + span };
let at = 1;
let linking = 0;
let turn = 0;
let playing = null;
let frame = 0;
// requests in the part of the time line that is shown, when they are few
let fine = { from: 0, to: -1, rows: [] };

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function clock(us) {
  return new Date(us / 1000).toISOString().slice(11, 23);
}

function length(us) {
  return us >= 60e6 ? `${(us / 60e6).toFixed(1)} min` : us >= 1e6 ? `${(us / 1e6).toFixed(1)} s` : `${(us / 1e3).toFixed(1)} ms`;
}

const clientName = (index) => story.clients[index].name;

// Requests come in packed chunks; one is unpacked when it is needed.
async function chunk(index) {
  if (!chunks.has(index)) {
    const packed = Uint8Array.from(atob(story.chunks[index]), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    chunks.set(index, new Response(stream).json());
    if (chunks.size > 50) chunks.delete(chunks.keys().next().value);
  }
  return chunks.get(index);
}

async function request(position) {
  const rows = await chunk(Math.floor((position - 1) / story.chunk));
  return rows[(position - 1) % story.chunk];
}

function describe(row) {
  const [num, client, connection, api, version, arrived, answered, bytes, response, outcome, errors] = row;
  return [number(num), clock(arrived), clientName(client), connection, `${api} ${version}`, answered === null ? "" : length(answered - arrived),
    number(bytes), response === null ? "" : number(response), errors ? `${outcome}: ${errors}` : outcome];
}

const isBad = (row) => Boolean(row[10]) || !["answered", "without response"].includes(row[9]);

async function goTo(position) {
  at = Math.max(1, Math.min(story.requests, Math.round(position)));
  const mine = ++turn;
  const slider = $("step");
  slider.value = at;
  slider.setAttribute("aria-valuetext", `Request ${at} of ${story.requests}`);
  $("where").textContent = `request ${number(at)} of ${number(story.requests)}`;
  const from = Math.max(1, at - 6), to = Math.min(story.requests, at + 8);
  const rows = [];
  for (let i = from; i <= to; i += 1) rows.push(await request(i));
  if (mine !== turn) return;
  const table = element("table", null, { class: "requests" });
  const head = table.createTHead().insertRow();
  for (const title of ["request", "time (UTC)", "client", "connection", "API", "took", "bytes", "response", "outcome"]) head.append(element("th", title, { scope: "col" }));
  const body = table.createTBody();
  rows.forEach((row, i) => {
    const line = body.insertRow();
    if (from + i === at) line.className = "here";
    if (isBad(row)) line.classList.add("bad");
    for (const cell of describe(row)) line.append(element("td", cell));
    line.addEventListener("click", () => goTo(from + i));
  });
  const scroll = element("div", null, { class: "scroll", tabindex: "0", role: "region", "aria-label": "Requests" });
  scroll.append(table);
  $("details").replaceChildren(scroll);
  const [, time, client, , api, , , , outcome] = describe(rows[at - from]);
  $("spoken").textContent = `Request ${at}, ${time}, ${client}, ${api}, ${outcome}`;
  clearTimeout(linking);
  linking = setTimeout(() => history.replaceState(null, "", `#request=${at}`), 300);
  moment = rows[at - from][5];
  const wide = view.to - view.from;
  if (moment < view.from) setView(moment - wide * 0.1, moment + wide * 0.9);
  else if (moment > view.to) setView(moment - wide * 0.9, moment + wide * 0.1);
  draw();
}

let moment = story.first_us;

function setView(from, to) {
  const wide = Math.min(span, Math.max(Math.min(span, SHORTEST), to - from));
  view.from = Math.max(story.first_us, Math.min(story.first_us + span - wide, from));
  view.to = view.from + wide;
  $("window").textContent = wide === span ? `all ${length(span)}` : `${clock(view.from)} to ${clock(view.to)} (${length(wide)})`;
  draw();
  refine();
}

function zoom(factor, middle = moment) {
  const around = middle >= view.from && middle <= view.to ? middle : (view.from + view.to) / 2;
  setView(around - (around - view.from) * factor, around + (view.to - around) * factor);
}

// The chunks of these times, by the time at which each begins.
function chunksOf(from, to) {
  const found = [];
  for (let i = 0; i < story.starts.length; i += 1) {
    if (story.starts[i] <= to && (i + 1 === story.starts.length || story.starts[i + 1] >= from)) found.push(i);
  }
  return found;
}

// Unpacks the requests of what is shown, if they are few; the columns for the whole session are drawn until then.
async function refine() {
  const { from, to } = view;
  if (fine.from <= from && fine.to >= to) return;
  const needed = chunksOf(from, to);
  if (needed.length > MOST_CHUNKS || !story.chunks.length) return;
  const rows = (await Promise.all(needed.map(chunk))).flat();
  if (view.from !== from || view.to !== to) return;
  fine = { from, to, rows: rows.filter((row) => row[5] <= to && (row[6] ?? row[5]) >= from) };
  draw();
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(drawNow);
}

// Only the rows that are in sight are drawn.
function drawNow() {
  const canvas = $("timeline"), scroller = $("scroller");
  const wide = scroller.clientWidth, all = TOP + story.clients.length * ROW;
  const high = Math.min(all, Math.max(120, window.innerHeight * 0.34));
  const dots = window.devicePixelRatio || 1;
  $("spacer").style.height = `${Math.max(0, all - high)}px`;
  if (canvas.width !== wide * dots || canvas.height !== high * dots) Object.assign(canvas, { width: wide * dots, height: high * dots });
  canvas.style.height = `${high}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, wide, high);
  pen.font = "12px system-ui, sans-serif";
  const room = wide - NAMES - TAIL;
  const x = (us) => NAMES + ((us - view.from) / (view.to - view.from)) * room;
  const top = scroller.scrollTop;
  const first = Math.floor(top / ROW), last = Math.min(story.clients.length, first + Math.ceil(high / ROW) + 1);
  const bars = barsOf(first, last, x);
  for (let index = first; index < last; index += 1) {
    const y = TOP + index * ROW - top;
    pen.fillStyle = colour("--ink");
    pen.fillText(fitted(pen, clientName(index), NAMES - 12), 6, y + 14);
    pen.save();
    pen.beginPath();
    pen.rect(NAMES, y, room, ROW);
    pen.clip();
    for (const [left, width, tall, bad, alpha] of bars(index)) {
      pen.fillStyle = bad ? colour("--t1") : colour("--t0");
      pen.globalAlpha = alpha;
      pen.fillRect(left, y + ROW - 2 - tall, width, tall);
    }
    pen.restore();
  }
  pen.fillStyle = colour("--paper");
  pen.fillRect(0, 0, wide, TOP - 2);
  drawAxis(pen, x, wide, room);
  const now = x(moment);
  if (now >= NAMES && now <= NAMES + room) {
    pen.fillStyle = colour("--now");
    pen.fillRect(now - 0.75, 16, 1.5, high - 16);
  }
}

// Times, and the marks of rebalances below them.
function drawAxis(pen, x, wide, room) {
  const step = niceStep((view.to - view.from) / Math.max(2, room / 110));
  pen.fillStyle = colour("--quiet");
  pen.fillText("time (UTC)", 6, 12);
  pen.textAlign = "center";
  for (let us = Math.ceil(view.from / step) * step; us <= view.to; us += step) {
    const text = step < 1000 ? `${clock(us)}${String(us % 1000).padStart(3, "0")}` : step < 1e6 ? clock(us) : clock(us).slice(0, 8);
    const half = pen.measureText(text).width / 2, place = x(us);
    if (place + half <= wide && place - half >= NAMES - 40) pen.fillText(text, place, 12);
  }
  pen.textAlign = "left";
  pen.fillStyle = colour("--t3");
  for (const group of story.groups) for (const rebalance of group.rebalances) {
    if (rebalance.began_us < view.from || rebalance.began_us > view.to) continue;
    const place = x(rebalance.began_us);
    pen.beginPath(); pen.moveTo(place - 5, 18); pen.lineTo(place + 5, 18); pen.lineTo(place, 28); pen.fill();
  }
}

// By client the bars to draw: left, width, height, whether it failed, how dense. Of few requests each has its own, from arrival to response.
function barsOf(first, last, x) {
  const tallest = ROW - 6;
  if (!(fine.from <= view.from && fine.to >= view.to)) {
    const step = x(view.from + span / story.bins) - x(view.from);
    return (index) => {
      const most = Math.max(1, ...story.density[index].map((bin) => bin[1]));
      return story.density[index].map(([bin, count, bad]) => [
        x(story.first_us + (bin * span) / story.bins), Math.max(1, step - 0.3), 3 + tallest * Math.sqrt(count / most), bad, 1]);
    };
  }
  const rows = fine.rows.filter((row) => row[1] >= first && row[1] < last && row[5] <= view.to && (row[6] ?? row[5]) >= view.from);
  const by = new Map();
  if (rows.length <= MOST_DRAWN) {
    for (const row of rows) {
      const left = x(row[5]);
      const bar = [left, Math.max(1.5, x(row[6] ?? row[5]) - left), tallest, isBad(row), 0.55];
      if (by.has(row[1])) by.get(row[1]).push(bar);
      else by.set(row[1], [bar]);
    }
    return (index) => by.get(index) || [];
  }
  for (const row of rows) {
    if (!by.has(row[1])) by.set(row[1], new Map());
    const columns = by.get(row[1]), column = Math.floor(x(row[5]));
    const [count, bad] = columns.get(column) || [0, false];
    columns.set(column, [count + 1, bad || isBad(row)]);
  }
  return (index) => {
    const columns = [...(by.get(index) || [])];
    const most = columns.reduce((largest, [, [count]]) => Math.max(largest, count), 1);
    return columns.map(([column, [count, bad]]) => [column, 1, 3 + tallest * Math.sqrt(count / most), bad, 1]);
  };
}

function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  // what tells clients with one id apart is at the end
  let cut = text.length;
  const tail = text.slice(-6);
  while (cut > 1 && pen.measureText(`${text.slice(0, cut)}…${tail}`).width > width) cut -= 1;
  return `${text.slice(0, cut)}…${tail}`;
}

function niceStep(least) {
  const nice = [60e6, 120e6, 300e6, 600e6, 900e6, 1800e6, 3600e6, 7200e6, 21600e6, 86400e6];
  if (least > 30e6) return nice.find((step) => step >= least) || 86400e6 * Math.ceil(least / 86400e6);
  if (least > 10e6) return least > 15e6 ? 30e6 : 15e6;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

// The first request that arrived at this time or later: their times grow with their numbers.
async function atTime(us) {
  // by the beginnings of chunks first, which need no unpacking
  const before = story.starts.findLastIndex((start) => start < us);
  let low = Math.max(0, before) * story.chunk + 1, high = Math.min(story.requests, (Math.max(0, before) + 1) * story.chunk + 1);
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if ((await request(middle))[5] < us) low = middle + 1;
    else high = middle;
  }
  return low;
}

function listFindings() {
  const list = element("ol", null, { class: "findings" });
  for (const finding of story.findings) {
    const item = element("li", null, { class: `finding ${finding.level === "error" ? "error" : "warning"}` });
    const title = element("h2", finding.code);
    title.append(" ", element("small", finding.about ? `${finding.level}, ${finding.about}` : finding.level));
    const evidence = element("p", "Requests:", { class: "evidence" });
    for (const num of finding.evidence) {
      const button = element("button", number(num), { type: "button" });
      button.addEventListener("click", () => goTo(story.positions[num] || num));
      evidence.append(button);
    }
    if (finding.count > finding.evidence.length) evidence.append(`and ${number(finding.count - finding.evidence.length)} more`);
    item.append(title, element("p", finding.text), element("p", finding.change, { class: "change" }), evidence);
    list.append(item);
  }
  $("findings").append(story.findings.length ? list : element("p", "No findings: nothing is wrong, as far as the requests show."));
}

function table(head, rows, kind) {
  const made = element("table", null, { class: kind });
  const titles = made.createTHead().insertRow();
  for (const title of head) titles.append(element("th", title, { scope: "col" }));
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const cell of row) line.append(element("td", cell));
  }
  const scroll = element("div", null, { class: "scroll", tabindex: "0" });
  scroll.append(made);
  return scroll;
}

function listClients() {
  const rows = story.clients.map((client) => [
    clientName(client.number), `${client.software} ${client.version}`, number(Object.values(client.requests).reduce((a, b) => a + b, 0)), number(client.records_read),
    number(client.records_written), client.groups.concat(client.transactional_ids).join(", "), Object.entries(client.settings).map(([name, value]) => `${name}=${value}`).join(", "),
  ]);
  $("clients").append(table(["client", "software", "requests", "read", "sent", "groups, transactional ids", "settings that the wire shows"], rows, "settings"));
}

function listGroups() {
  for (const group of story.groups) {
    const isShare = group.group_protocol === "share";
    const kind = isShare ? `share group, ${group.summary}` : `${group.rebalances.length} rebalances, ${group.protocol || "no assignor"}`;
    $("groups").append(element("h2", `${group.id}: ${group.members.length} members, ${kind}`));
    if (isShare) $("groups").append(table(["client", "delivered", "held at the end", "longest", "renewed", "how deliveries ended"], group.work.map((w) => [
      clientName(w.client), number(w.delivered), number(w.held), length(w.longest_us), number(w.renewed), Object.entries(w.ended).map(([how, count]) => `${number(count)} ${how}`).join(", "),
    ]), "settings"));
    const moments = isShare ? group.moments.slice() : group.rebalances.map((r) => [r.began_us, `generation ${r.generation}: ${r.text}; joins took ${length(r.joined_us - r.began_us)}, assignment ${length(r.ended_us - r.joined_us)}`]);
    for (const member of group.members) {
      if (isShare) moments.push([member.joined_us, `${member.id} (${clientName(member.client)}) joined`]);
      else if (member.assigned) moments.push([member.assigned_us ?? member.joined_us, `${member.id} (${clientName(member.client)}) has ${member.assigned.join(", ") || "no partition"}`]);
      if (member.how && member.ended_us) moments.push([member.ended_us, `${member.id} ${{ left: "left", expired: "was removed", fenced: "was fenced", replaced: "came back" }[member.how]}${member.reason ? ` (${member.reason})` : ""}`]);
    }
    const list = element("ol", null, { class: "moments" });
    for (const [us, text] of moments.sort((a, b) => a[0] - b[0]).slice(0, 500)) {
      const item = element("li");
      item.append(element("time", clock(us)), text);
      list.append(item);
    }
    $("groups").append(list);
  }
  if (!story.groups.length) $("groups").append(element("p", "No groups.", { class: "none" }));
}

function listLag() {
  const rows = story.lag.slice(0, 500).map((b) => [b.lane, b.group, number(b.lag), b.read_s.toFixed(1), b.arrive_s.toFixed(1), b.clears_s === null ? "never" : length(b.clears_s * 1e6), b.held_by]);
  $("lag").append(element("h2", "Lag"), table(["partition", "group", "lag", "read / s", "arrive / s", "gone in", "held back by"], rows, "settings"));
  const waits = story.order.flatMap((order) => order.waiting.slice(0, 200).map((w) => [clientName(order.client), w.lane, number(w.fetches), number(w.records), `${w.worst_wait} fetches, ${length(w.worst_wait_us)}`, w.reason]));
  $("lag").append(element("h2", "Order"), table(["client", "partition", "fetches", "records", "longest wait for its turn", "why"], waits, "settings"));
  for (const polls of story.polls) listPolls(polls);
}

function listPolls(polls) {
  $("lag").append(element("h2", `Polls of ${clientName(polls.client)}`));
  if (polls.why_not) {
    $("lag").append(element("p", `Not derived: ${polls.why_not}`, { class: "none" }));
    return;
  }
  const between = polls.max_poll_records_between;
  const agree = between && between[0] !== between[1] ? `; ${between[0]} to ${between[1]} agree with the fetches` : "";
  $("lag").append(element("p", `${number(polls.total)} polls with records by the rules of ${polls.release}, max.poll.records ${polls.max_poll_records} (${polls.max_poll_records_from}${agree}).`));
  const runs = (poll) => poll.runs.map(([lane, first, last, records, exact]) => `${lane} ${exact ? "" : "about "}${first}..${last} (${records})`).join(", ");
  const rows = polls.polls.map((poll, at) => [String(at + 1), runs(poll), poll.buffered.join(", "), poll.fetch === null ? "" : String(poll.fetch), poll.decided ? "" : "the fetches allow another way"]);
  $("lag").append(table(["poll", "returned, in order", "left for later", "next fetch", ""], rows, "settings"));
  const notes = polls.calls.map(([method, lane, offset, fetch]) => `${method} of ${lane}${offset >= 0 ? ` to ${offset}` : ""}: inferred from request ${fetch}`);
  if (polls.parted) notes.push(`From request ${polls.parted.fetch} on the polls are not known: ${polls.parted.why}`);
  if (polls.buffered.length) notes.push(`Had arrived, and no fetch shows that a poll returned it: ${polls.buffered.join(", ")}`);
  for (const [lane, count, reason] of polls.starved) notes.push(`${lane} waited ${number(count)} polls: ${reason}`);
  for (const note of notes) $("lag").append(element("p", note));
}

const TABS = ["findings", "clients", "groups", "lag"];

function tab(name) {
  for (const other of TABS) {
    $(other).hidden = other !== name;
    $(`tab-${other}`).setAttribute("aria-selected", String(other === name));
    $(`tab-${other}`).tabIndex = other === name ? 0 : -1;
  }
}

// Where a request is in the list: its number, unless requests were not recorded. 0: it is not in the session.
async function placeOf(num) {
  let low = 1, high = story.requests;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if ((await request(middle))[0] < num) low = middle + 1;
    else high = middle;
  }
  return story.requests && (await request(low))[0] === num ? low : 0;
}

async function find(text) {
  const found = $("found");
  const wanted = text.trim().toLowerCase();
  found.hidden = false;
  if (/^[0-9,]+$/.test(wanted)) {
    const num = Number(wanted.replaceAll(",", ""));
    const place = await placeOf(num);
    found.hidden = place > 0;
    if (!found.hidden) found.replaceChildren(element("p", `There is no request ${num}: there are ${number(story.requests)}.`));
    else await goTo(place);
    return;
  }
  found.replaceChildren(element("p", `Looking for ${text} ..`));
  const groups = story.groups.filter((group) => group.id.toLowerCase().includes(wanted)).flatMap((group) => group.members.map((member) => member.client));
  for (let i = 0; i < story.requests; i += 1) {
    const position = ((at + i) % story.requests) + 1;
    const row = await request(position);
    if (clientName(row[1]).toLowerCase().includes(wanted) || row[3].toLowerCase().includes(wanted) || (row[10] || "").toLowerCase().includes(wanted) || groups.includes(row[1])) {
      found.hidden = true;
      await goTo(position);
      return;
    }
  }
  found.replaceChildren(element("p", `Nothing is called ${text}: no client, group, API or error.`));
}

async function bad(step) {
  for (let position = at + step; position >= 1 && position <= story.requests; position += step) {
    if (isBad(await request(position))) return goTo(position);
  }
  return undefined;
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  draw();
}

function play(on) {
  clearInterval(playing);
  playing = on ? setInterval(() => { if (at >= story.requests) play(false); else goTo(at + 1); }, 350) : null;
  $("play").textContent = on ? "❚❚ pause" : "▶︎ play";
  $("play").setAttribute("aria-pressed", String(on));
}

async function pointed(event) {
  const room = $("scroller").clientWidth - NAMES - TAIL;
  const part = Math.max(0, Math.min(1, (event.offsetX - NAMES) / room));
  goTo(await atTime(view.from + part * (view.to - view.from)));
}

function wheel(event) {
  const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
  if (!event.ctrlKey && !sideways) return;
  event.preventDefault();
  if (event.ctrlKey) {
    const part = Math.max(0, Math.min(1, (event.offsetX - NAMES) / ($("scroller").clientWidth - NAMES - TAIL)));
    zoom(event.deltaY > 0 ? 1.25 : 0.8, view.from + part * (view.to - view.from));
  } else {
    const move = ((event.deltaX || event.deltaY) / 400) * (view.to - view.from);
    setView(view.from + move, view.to + move);
  }
}

const screen = async (step) => goTo(await atTime(moment + step * (view.to - view.from)));

const keys = {
  ArrowLeft: (event) => goTo(at - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => goTo(at + (event.shiftKey ? 10 : 1)),
  PageUp: () => screen(-1),
  PageDown: () => screen(1),
  Home: () => goTo(1),
  End: () => goTo(story.requests),
  n: () => bad(1),
  p: () => bad(-1),
  t: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  "/": () => $("query").focus(),
  "+": () => zoom(0.6),
  "=": () => zoom(0.6),
  "-": () => zoom(1 / 0.6),
  0: () => setView(story.first_us, story.first_us + span),
  " ": () => play(!playing),
};

function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  $("subtitle").textContent = story.subtitle;
  $("step").max = Math.max(1, story.requests);
  listFindings(); listClients(); listGroups(); listLag();
  TABS.forEach((name, i) => {
    $(`tab-${name}`).addEventListener("click", () => tab(name));
    $(`tab-${name}`).addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.stopPropagation();
      const other = TABS[(i + step + TABS.length) % TABS.length];
      tab(other);
      $(`tab-${other}`).focus();
    });
  });
  $("first").addEventListener("click", () => goTo(1));
  $("back").addEventListener("click", () => goTo(at - 1));
  $("next").addEventListener("click", () => goTo(at + 1));
  $("theme").addEventListener("click", keys.t);
  $("step").addEventListener("input", () => goTo(Number($("step").value)));
  $("search").addEventListener("submit", (event) => { event.preventDefault(); find($("query").value); });
  $("scroller").addEventListener("scroll", draw);
  $("timeline").addEventListener("pointerdown", (event) => { $("timeline").setPointerCapture(event.pointerId); pointed(event); });
  $("timeline").addEventListener("pointermove", (event) => { if (event.buttons & 1) pointed(event); });
  $("timeline").addEventListener("wheel", wheel, { passive: false });
  $("play").addEventListener("click", () => play(!playing));
  $("in").addEventListener("click", () => zoom(0.6));
  $("out").addEventListener("click", () => zoom(1 / 0.6));
  $("all").addEventListener("click", keys[0]);
  addEventListener("resize", draw);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search], select")) return;
    // buttons keep the space bar
    if (event.target.matches("button") && event.key === " ") return;
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act) { event.preventDefault(); act(event); }
  });
  const linked = () => Number(/^#request=(\d+)$/.exec(location.hash)?.[1] ?? 0);
  setView(view.from, view.to);
  if (story.requests) goTo(linked() || story.positions[story.findings[0]?.evidence[0]] || 1);
  addEventListener("hashchange", () => goTo(linked() || at));
}

start();
