// SPDX-License-Identifier: Apache-2.0
// The page of seine agent. It asks the API and shows what that says. Text goes into the
// document as text nodes alone: names of processes are chosen by whoever runs them.

const most = 200; // rows of a table: more are counted and can be filtered
const parts = ["connect", "accept", "app", "unread", "peer", "receiving", "window", "buffer", "loss", "network", "idle", "closing", "unknown"];
const ofTurn = parts.filter((p) => !["connect", "accept", "idle", "closing", "unknown"].includes(p));
const main = document.getElementById("main");
const say = document.getElementById("state");
let paused = false, route = {}, filter = "", order = {}, busy = false, again = false, pressed = false, late = false, shown = null;

// h makes an element.
function h(tag, attrs, ...children) {
  const svg = ["svg", "rect", "path", "text", "g", "line", "title"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v === true ? "" : String(v));
  }
  for (const c of children.flat(9)) if (c !== null && c !== undefined) e.append(c instanceof Node ? c : document.createTextNode(String(c)));
  return e;
}

const api = async (what, params) => {
  const q = new URLSearchParams(Object.entries(params || {}).filter(([, v]) => v !== undefined && v !== ""));
  const r = await fetch("api/v1/" + what + (q.size ? "?" + q : ""));
  if (!r.ok) throw new Error((await r.json().catch(() => ({}))).error || r.statusText);
  return what === "query" ? (await r.text()).trim().split("\n").filter(Boolean).map((l) => JSON.parse(l)) : r.json();
};

const number = (n) => n === undefined || n === null ? "–" : n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString("en") : n.toFixed(1);
const took = (us) => us === undefined || us === null ? "–" : us < 1000 ? us.toFixed(0) + " µs" : us < 1e6 ? (us / 1e3).toFixed(us < 1e4 ? 2 : 1) + " ms" : (us / 1e6).toFixed(2) + " s";
const size = (n) => { for (const u of ["B", "kB", "MB", "GB"]) { if (n < 1000) return (n < 10 && u !== "B" ? n.toFixed(1) : Math.round(n)) + " " + u; n /= 1000; } return number(n) + " TB"; };
const windowSeconds = () => document.getElementById("window").value;
const link = (view, id) => "#" + view + (id ? "/" + encodeURIComponent(id) : "");

// bar is where the time of turns goes, as a picture and in words.
function bar(ms, which = ofTurn) {
  const all = which.reduce((n, p) => n + (ms[p] || 0), 0);
  if (!all) return h("span", { class: "dim" }, "–");
  let x = 0;
  const words = which.filter((p) => (ms[p] || 0) / all >= 0.005).sort((a, b) => ms[b] - ms[a]).map((p) => `${p} ${Math.round(100 * ms[p] / all)} %`).join(", ");
  return h("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": words }, h("title", {}, words),
    which.filter((p) => ms[p]).map((p) => { const w = 100 * ms[p] / all; const r = h("rect", { class: "part-" + p, x, y: 0, width: w, height: 8 }); x += w; return r; }));
}
const legend = (which) => h("ul", { class: "legend" }, which.map((p) => h("li", {}, h("svg", { viewBox: "0 0 8 8", "aria-hidden": "true" }, h("rect", { class: "part-" + p, width: 8, height: 8 })), " ", p)));

// table shows rows. A column is {head, cell, value for sorting, name: it is text}.
function table(id, columns, rows, total, caption) {
  const sort = order[id];
  if (sort) {
    const c = columns[sort.column];
    rows = [...rows].sort((a, b) => { const x = c.value(a) ?? -1, y = c.value(b) ?? -1; return (x < y ? -1 : x > y ? 1 : 0) * (sort.up ? 1 : -1); });
  }
  const head = columns.map((c, i) => h("th", { scope: "col", class: (c.name ? "name" : "") + (c.wide ? " wide" : ""), "aria-sort": sort && sort.column === i ? (sort.up ? "ascending" : "descending") : null },
    c.value ? h("button", { type: "button", id: `sort-${id}-${i}`, onclick: () => { order[id] = { column: i, up: sort && sort.column === i ? !sort.up : !!c.name }; refresh(); } }, c.head) : c.head));
  const body = rows.slice(0, most).map((r) => h("tr", { "data-id": r.id }, columns.map((c) => h("td", { class: (c.name ? "name" : "") + (c.wide ? " wide" : ""), "data-column": c.id }, c.cell(r)))));
  return [h("div", { class: "scroll" }, h("table", { id }, h("caption", { class: "dim" }, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body))),
    total > body.length ? h("p", { class: "dim" }, `${number(body.length)} of ${number(total)} are shown: filter to see others.`) : null];
}

// filterForm is the same element as long as a view is shown, so that typing is not disturbed.
function filterForm(label) {
  const stands = main.querySelector("form[role=search]");
  if (stands && stands.textContent === label) return stands;
  const input = h("input", { id: "filter", type: "search", value: filter, autocomplete: "off", oninput: (e) => { filter = e.target.value; refresh(); } });
  return h("form", { class: "filter", role: "search", onsubmit: (e) => e.preventDefault() }, h("label", { for: "filter" }, label, input));
}
const verdict = (f) => f ? h("a", { class: f.severity, href: link("findings") }, f.class) : "";

// graph draws values over time: lines, and bars of counts below.
function graph(seconds, lines, label) {
  if (!seconds.length) return h("p", { class: "dim" }, "Nothing yet.");
  const W = 900, H = 100, from = seconds[0].t, span = Math.max(seconds[seconds.length - 1].t - from, 1);
  const top = Math.max(1, ...seconds.flatMap((s) => lines.map((l) => l.value(s) || 0)));
  const x = (t) => 4 + (W - 8) * (t - from) / span, y = (v) => H - 4 - (H - 12) * v / top;
  const path = (l) => seconds.reduce((d, s) => { const v = l.value(s); return v === undefined || v === null ? d : d + (d ? "L" : "M") + x(s.t).toFixed(1) + " " + y(v).toFixed(1); }, "");
  const clock = (t) => new Date(t * 1000).toLocaleTimeString();
  return h("figure", {}, h("figcaption", {}, `${label}, up to ${lines[0].text(top)}`),
    h("svg", { class: "graph", viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: at most ${lines[0].text(top)}` }, lines.map((l) => h("path", { class: l.class, d: path(l) }))),
    h("div", { class: "clock" }, h("span", {}, clock(from)), h("span", {}, clock(from + span))));
}
function graphs(seconds) {
  return [h("p", { class: "dim" }, h("span", { class: "info" }, "p50"), " and ", h("span", { class: "bad" }, "p99"), " of turns; turns, segments sent again and drops a second"),
    graph(seconds, [{ class: "p99", value: (s) => s.p99_us, text: took }, { class: "p50", value: (s) => s.p50_us, text: took }], "Time of turns"),
    graph(seconds, [{ class: "p50", value: (s) => s.turns, text: number }], "Turns a second"),
    graph(seconds, [{ class: "p99", value: (s) => s.retrans, text: number }], "Sent again a second"),
    seconds.some((s) => s.drops !== undefined) ? graph(seconds, [{ class: "p99", value: (s) => s.drops, text: number }], "Packets dropped a second, whole machine") : null];
}

const serviceColumns = [
  { id: "service", head: "Service", name: true, value: (s) => s.service, cell: (s) => [h("a", { href: link("services", s.id) }, s.service), s.container ? h("span", { class: "dim" }, " in " + s.container) : null] },
  { id: "side", head: "Side", wide: true, value: (s) => s.side, cell: (s) => s.side },
  { id: "conns", head: "Connections", value: (s) => s.conns, cell: (s) => number(s.conns) },
  { id: "turns_s", head: "Turns/s", value: (s) => s.turns_s, cell: (s) => number(s.turns_s) },
  { id: "p50_us", head: "p50", value: (s) => s.p50_us, cell: (s) => took(s.p50_us) },
  { id: "p99_us", head: "p99", value: (s) => s.p99_us, cell: (s) => took(s.p99_us) },
  { id: "parts", head: "Where the time of turns goes", cell: (s) => bar(s.parts_ms) },
  { id: "retrans", head: "Sent again", wide: true, value: (s) => s.retrans, cell: (s) => number(s.retrans) },
  { id: "bytes", head: "Bytes", wide: true, value: (s) => s.tx_bytes + s.rx_bytes, cell: (s) => size(s.tx_bytes + s.rx_bytes) },
  { id: "finding", head: "Finding", cell: (s) => verdict(s.finding) },
];
const connColumns = [
  { id: "comm", head: "Process", name: true, value: (c) => c.comm, cell: (c) => h("a", { href: link("connection", c.id) }, (c.comm || "(unknown)") + (c.pid ? ` (${c.pid})` : "")) },
  { id: "local", head: "Local", value: (c) => c.lport, cell: (c) => `${c.laddr}:${c.lport}` },
  { id: "remote", head: "Remote", value: (c) => c.rport, cell: (c) => `${c.raddr}:${c.rport}` },
  { id: "role", head: "Role", wide: true, value: (c) => c.role, cell: (c) => c.role },
  { id: "turns", head: "Turns", value: (c) => c.turns, cell: (c) => number(c.turns) },
  { id: "srtt_us", head: "RTT", value: (c) => c.srtt_us, cell: (c) => took(c.srtt_us || undefined) },
  { id: "retrans", head: "Sent again", value: (c) => c.retrans_fast + c.retrans_tlp + c.retrans_rto, cell: (c) => number(c.retrans_fast + c.retrans_tlp + c.retrans_rto) },
  { id: "bytes", head: "Bytes", wide: true, value: (c) => c.tx_bytes + c.rx_bytes, cell: (c) => size(c.tx_bytes + c.rx_bytes) },
  { id: "parts", head: "Where its time goes", cell: (c) => bar(c.parts_ms, parts) },
  { id: "closed", head: "State", wide: true, cell: (c) => (c.closed ? "closed" : "open") + (c.older ? ", older than the agent" : "") },
];

const views = {
  async services() {
    if (route.id) {
      const [a, t, c] = await Promise.all([api("services", { id: route.id, window: windowSeconds() }), api("timeline", { id: route.id, window: 300 }), api("connections", { id: route.id, limit: most })]);
      const s = a.services[0];
      return [h("h2", {}, s ? s.service : route.id), s ? table("services", serviceColumns, [s], 1, "The service") : h("p", {}, "It did nothing in this window."), s ? [legend(parts.filter((p) => s.parts_ms[p])), bar(s.parts_ms, parts)] : null,
        graphs(t.seconds.filter((x) => x.t <= t.settled)), h("h2", {}, "Its connections"), table("connections", connColumns, c.connections, c.total, "Its connections, the most recently active first")];
    }
    const [a, t] = await Promise.all([api("services", { window: windowSeconds(), limit: most, q: filter }), api("timeline", { window: 120 })]);
    return [filterForm("Filter services"), legend(ofTurn), a.services.length ? table("services", serviceColumns, a.services, a.total, `${number(a.total)} services in ${a.to - a.from} s`) : h("p", { class: "dim" }, "No service did anything in this window."),
      h("h2", {}, "All services"), graphs(t.seconds.filter((x) => x.t <= t.settled))];
  },
  async findings() {
    const a = await api("findings", { window: windowSeconds() });
    return [a.findings.length ? a.findings.map((f) => h("article", { class: "card " + f.severity, "data-id": f.id }, h("h2", {}, h("span", { class: f.severity }, f.severity), " ", f.class, ": ", f.object), h("p", {}, f.title),
      h("dl", {}, f.evidence.map((e) => [h("dt", {}, e.what), h("dd", {}, `${number(e.value)} ${e.unit} `, h("span", { class: "dim" }, `(${e.from})`))])),
      h("p", {}, f.advice), h("p", { class: "dim" }, `How sure: ${f.confidence}${f.reason ? ", " + f.reason : ""}.`, f.causes.length ? ` Explained by finding ${f.causes.join(", ")}.` : ""),
      f.next ? h("p", {}, h("code", {}, f.next), " ", h("button", { type: "button", onclick: (e) => copy(f.next, e.target) }, "Copy")) : null)) : h("p", { id: "well" }, `Nothing is wrong: ${a.judged.length} things were looked for.`),
      a.unjudged.length ? h("details", {}, h("summary", {}, `${a.unjudged.length} things could not be judged`), h("ul", {}, a.unjudged.map((u) => h("li", {}, `${u.class}: ${u.why}`)))) : null];
  },
  async map() {
    const a = await api("map", { window: windowSeconds(), limit: 150 });
    if (!a.edges.length) return h("p", { class: "dim" }, "Nobody talks to anybody in this window.");
    return [h("div", { class: "scroll" }, draw(a)), h("p", { class: "dim" }, a.total > a.edges.length ? `The ${a.edges.length} of ${number(a.total)} with the most bytes.` : ""), table("edges", [
      { id: "from", head: "Who asks", name: true, value: (e) => label(a, e.from), cell: (e) => label(a, e.from) }, { id: "to", head: "Who answers", name: true, value: (e) => label(a, e.to), cell: (e) => h("a", { href: link("services", e.service) }, label(a, e.to)) },
      { id: "turns", head: "Turns", value: (e) => e.turns, cell: (e) => number(e.turns) }, { id: "p99_us", head: "p99", value: (e) => e.p99_us, cell: (e) => took(e.p99_us) },
      { id: "bytes", head: "Bytes", value: (e) => e.bytes, cell: (e) => size(e.bytes) }, { id: "finding", head: "Finding", cell: (e) => verdict(e.finding) }], a.edges, a.total, "The same as a table")];
  },
  async connections() {
    const a = await api("connections", { limit: most, q: filter });
    return [filterForm("Filter connections"), legend(parts), table("connections", connColumns, a.connections, a.total, `${number(a.total)} connections`)];
  },
  async connection() {
    const { connection: c } = await api("connection", { id: route.id });
    const seconds = (c.history || []).map((m) => ({ ...m }));
    return [h("h2", {}, `${c.comm || "(unknown)"} ${c.laddr}:${c.lport} – ${c.raddr}:${c.rport}`), table("connections", connColumns, [c], 1, "The connection, in its last second"), legend(parts.filter((p) => c.parts_ms[p])), bar(c.parts_ms, parts),
      h("dl", {}, h("dt", {}, "Role"), h("dd", {}, c.role), h("dt", {}, "Round trip"), h("dd", {}, `${took(c.srtt_us)}, at least ${took(c.min_rtt_us)}`), h("dt", {}, "Sent again"), h("dd", {}, `fast ${c.retrans_fast}, tail loss probe ${c.retrans_tlp}, timeout ${c.retrans_rto}`)),
      graph(seconds, [{ class: "p50", value: (s) => s.srtt_us, text: took }], "Round-trip time"), graph(seconds, [{ class: "p50", value: (s) => s.tx_bytes + s.rx_bytes, text: size }], "Bytes a second"), graph(seconds, [{ class: "p99", value: (s) => s.retrans, text: number }], "Sent again a second")];
  },
  async recording() {
    const field = (name, label, value) => h("label", {}, label, h("input", { name, value, autocomplete: "off" }));
    const out = h("div", { id: "rows" });
    const ask = async (e) => {
      e.preventDefault();
      const q = Object.fromEntries(new FormData(e.target));
      out.replaceChildren(h("p", { class: "dim" }, "Asking…"));
      try {
        const rows = await api("query", { ...q, limit: 1000 });
        const ids = [...new Set(rows.slice(0, 50).flatMap((r) => Object.keys(r)))].filter((k) => k !== "tool").slice(0, 14);
        out.replaceChildren(...(rows.length ? [table("rows-table", ids.map((id) => ({ id, head: id, name: typeof rows[0][id] === "string", value: (r) => r[id], cell: (r) => r[id] === undefined ? "–" : typeof r[id] === "object" ? JSON.stringify(r[id]).slice(0, 80) : r[id] })), rows, rows.length, `${rows.length} rows`)].flat(9).filter(Boolean) : [h("p", {}, "No rows.")]));
      } catch (err) { out.replaceChildren(h("p", { class: "bad", role: "alert" }, err.message)); }
    };
    shown = "recording"; // it stays as it is while it is shown
    return [h("p", {}, "Rows of the recording, in a range of time."), h("form", { class: "filter", id: "query", onsubmit: ask }, field("tool", "Tool", "tcplife"), field("since", "Since", "10m ago"), field("until", "Until", ""), field("where", "Where", ""), field("by", "By", ""), h("button", {}, "Show")), out];
  },
};

const label = (a, id) => (a.nodes.find((n) => n.id === id) || { label: id }).label;

// draw puts who asks to the left of whom they ask.
function draw(a) {
  const level = new Map(a.nodes.map((n) => [n.id, n.kind === "remote" ? 2 : n.kind === "clients" ? 0 : 1]));
  const columns = [0, 1, 2].map((l) => a.nodes.filter((n) => level.get(n.id) === l)).filter((c) => c.length);
  const rows = Math.max(...columns.map((c) => c.length), 1), W = 960, H = 30 + rows * 34, place = new Map();
  columns.forEach((c, l) => c.forEach((n, i) => place.set(n.id, { x: 10 + l * 350, y: 20 + (i + 0.5) * (H - 30) / c.length })));
  const most = Math.max(...a.edges.map((e) => e.bytes), 1);
  const edges = a.edges.map((e) => {
    const p = place.get(e.from), q = place.get(e.to), same = level.get(e.from) === level.get(e.to);
    const x1 = p.x + 240, x2 = same ? q.x + 240 : q.x, bend = same ? x1 + 60 : (x1 + x2) / 2;
    return h("path", { class: "edge " + (e.finding ? e.finding.severity : ""), "stroke-width": (1 + 4 * Math.log1p(e.bytes) / Math.log1p(most)).toFixed(1), d: `M${x1} ${p.y}C${bend} ${p.y} ${bend} ${q.y} ${x2} ${q.y}` }, h("title", {}, `${label(a, e.from)} → ${label(a, e.to)}: ${number(e.turns)} turns, p99 ${took(e.p99_us)}, ${size(e.bytes)}`));
  });
  return h("svg", { class: "map", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Who talks to whom. The table below says the same." }, edges, a.nodes.map((n) => {
    const p = place.get(n.id);
    return h("g", { "data-id": n.id }, h("rect", { class: "node " + n.kind, x: p.x, y: p.y - 13, width: 240, height: 26, rx: 5 }), h("text", { x: p.x + 8, y: p.y + 4 }, n.label.length > 34 ? n.label.slice(0, 33) + "…" : n.label, h("title", {}, n.label)));
  }));
}

async function copy(text, button) {
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select and copy it"; }
}

// refresh asks for what the view shows and puts it in place. The focus stays where it is. While a
// button is pressed nothing changes: a click is a press and a release on the same element.
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    do {
      again = false;
      const asked = location.hash;
      const view = views[route.view];
      let content;
      try { content = [await view()].flat(9).filter((c) => c !== null && c !== undefined); } catch (err) { content = [h("p", { class: "bad", role: "alert" }, err.message)]; }
      if (asked !== location.hash) { again = true; continue; }
      if (pressed) { late = true; break; }
      const focus = document.activeElement, id = focus && main.contains(focus) ? focus.id : "", href = focus && main.contains(focus) ? focus.getAttribute("href") : null;
      if (content[0] === main.firstChild) { // it keeps its focus and the place in its text
        while (main.lastChild !== main.firstChild) main.lastChild.remove();
        main.append(...content.slice(1));
      } else main.replaceChildren(...content);
      main.dataset.view = route.view;
      const to = id ? document.getElementById(id) : href ? [...main.querySelectorAll("a")].find((x) => x.getAttribute("href") === href) : null;
      if (to && to !== document.activeElement) to.focus({ preventScroll: true });
    } while (again);
  } finally { busy = false; }
}

function go() {
  const [view, ...rest] = location.hash.slice(1).split("/");
  route = { view: views[view] ? view : "services", id: rest.length ? decodeURIComponent(rest.join("/")) : "" };
  shown = null;
  for (const a of document.querySelectorAll("nav a")) a.dataset.view === route.view ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
  document.title = "seine: " + route.view;
  refresh();
}

async function count() {
  try {
    const n = (await api("findings", {})).findings.filter((f) => f.severity !== "info").length, e = document.getElementById("findings-count");
    e.textContent = n; e.hidden = n === 0;
  } catch { /* the state says it */ }
}

function listen() {
  const source = new EventSource("api/v1/events");
  source.addEventListener("status", (e) => {
    const s = JSON.parse(e.data), lost = s.sources.reduce((n, x) => n + x.lost, 0), missing = s.sources.filter((x) => x.missing);
    document.getElementById("host").textContent = s.host;
    say.textContent = `${s.ready ? "Live" : "Not ready: " + s.why}, ${new Date(s.last * 1000).toLocaleTimeString()}` + (lost ? `, ${number(lost)} events lost` : "") + (missing.length ? `, not seen: ${missing.map((x) => x.name).join(", ")}` : "") + (paused ? ", paused" : "");
    if (!paused && shown !== "recording" && !document.hidden) { refresh(); count(); }
  });
  source.onerror = () => { say.textContent = "The agent does not answer. Trying again…"; };
}

document.getElementById("pause").addEventListener("click", (e) => { paused = !paused; e.target.setAttribute("aria-pressed", paused); e.target.textContent = paused ? "Go on" : "Pause"; });
document.getElementById("window").addEventListener("change", () => refresh());
const theme = (t) => { document.documentElement.dataset.theme = t; try { localStorage.setItem("theme", t); } catch { /* it is for this page alone then */ } };
document.getElementById("theme").addEventListener("click", () => theme((document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark" ? "light" : "dark"));
try { const t = localStorage.getItem("theme"); if (t) document.documentElement.dataset.theme = t; } catch { /* none is kept */ }
addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => setTimeout(() => { pressed = false; if (late) { late = false; refresh(); } }));
addEventListener("hashchange", () => { go(); main.focus({ preventScroll: true }); });
go();
listen();
