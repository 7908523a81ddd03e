// The page of a session: findings, clients and groups as lists, a time line, and requests, which are unpacked when they are shown.
// Everything that clients have sent is put into the page as text, never as markup.

const story = JSON.parse(document.getElementById("story").textContent);
const $ = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const chunks = new Map();
const ROW = 22, TOP = 18, NAMES = 170;
let at = 1;
let linking = 0;
let turn = 0;

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

const clientName = (index) => story.clients[index].client_id || story.clients[index].software || "(no client id)";

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
  draw();
}

let moment = story.first_us;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Only the rows that are in sight are drawn.
function draw() {
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
  const span = Math.max(1, story.last_us - story.first_us);
  const x = (us) => NAMES + ((us - story.first_us) / span) * (wide - NAMES - 8);
  const step = (wide - NAMES - 8) / story.bins;
  const first = Math.floor(scroller.scrollTop / ROW), last = Math.min(story.clients.length, first + Math.ceil(high / ROW) + 1);
  for (let index = first; index < last; index += 1) {
    const y = TOP + index * ROW - scroller.scrollTop;
    if (y < TOP - ROW) continue;
    pen.fillStyle = colour("--ink");
    pen.fillText(clientName(index).slice(0, 24), 6, y + 14, NAMES - 12);
    const most = Math.max(1, ...story.density[index].map((bin) => bin[1]));
    for (const [bin, count, bad] of story.density[index]) {
      const tall = 3 + (ROW - 6) * Math.sqrt(count / most);
      pen.fillStyle = bad ? colour("--t1") : colour("--t0");
      pen.fillRect(NAMES + bin * step, y + ROW - 2 - tall, Math.max(1, step - 0.3), tall);
    }
  }
  pen.fillStyle = colour("--paper");
  pen.fillRect(0, 0, wide, TOP - 2);
  pen.fillStyle = colour("--t3");
  for (const group of story.groups) for (const rebalance of group.rebalances) {
    const place = x(rebalance.began_us);
    pen.beginPath(); pen.moveTo(place - 5, 3); pen.lineTo(place + 5, 3); pen.lineTo(place, 13); pen.fill();
  }
  pen.fillStyle = colour("--now");
  pen.fillRect(x(moment) - 0.75, 0, 1.5, high);
}

// The first request that arrived at this time or later: their times grow with their numbers.
async function atTime(us) {
  let low = 1, high = story.requests;
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
      if (member.assigned) moments.push([member.joined_us, `${member.id} (${clientName(member.client)}) has ${member.assigned.join(", ") || "no partition"}`]);
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
}

const TABS = ["findings", "clients", "groups", "lag"];

function tab(name) {
  for (const other of TABS) {
    $(other).hidden = other !== name;
    $(`tab-${other}`).setAttribute("aria-selected", String(other === name));
    $(`tab-${other}`).tabIndex = other === name ? 0 : -1;
  }
}

async function find(text) {
  const found = $("found");
  const wanted = text.trim().toLowerCase();
  found.hidden = false;
  if (/^[0-9,]+$/.test(wanted)) {
    const num = Number(wanted.replaceAll(",", ""));
    found.hidden = num >= 1 && num <= story.requests;
    if (!found.hidden) found.replaceChildren(element("p", `There is no request ${num}: there are ${number(story.requests)}.`));
    else await goTo(story.positions[num] || num);
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

const keys = {
  ArrowLeft: (event) => goTo(at - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => goTo(at + (event.shiftKey ? 10 : 1)),
  PageUp: () => goTo(at - 100),
  PageDown: () => goTo(at + 100),
  Home: () => goTo(1),
  End: () => goTo(story.requests),
  n: () => bad(1),
  p: () => bad(-1),
  t: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  "/": () => $("query").focus(),
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
  $("timeline").addEventListener("click", async (event) => {
    const wide = $("scroller").clientWidth - NAMES - 8;
    goTo(await atTime(story.first_us + ((event.offsetX - NAMES) / wide) * (story.last_us - story.first_us)));
  });
  addEventListener("resize", draw);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act) { event.preventDefault(); act(event); }
  });
  const linked = /^#request=(\d+)$/.exec(location.hash);
  if (story.requests) goTo(linked ? Number(linked[1]) : story.positions[story.findings[0]?.evidence[0]] || 1);
  draw();
}

start();
