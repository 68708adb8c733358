import { ask, onKeys, say, step } from "./common.js";

const fields = document.querySelector("[data-filters]");
const query = document.querySelector("[data-query]");
const rows = () => document.querySelector("[data-rows]");
let latest = 0;

// Swaps the list without leaving the page; the address says what is listed, so that it can be kept and shared.
async function show(address, keep = true) {
  const turn = ++latest;
  const before = rows();
  before.setAttribute("aria-busy", "true");
  const model = choices().model;
  try {
    const html = await ask(address, { headers: { "x-part": "rows", accept: "text/html" } });
    if (turn !== latest) return;
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    if (!fresh.content.querySelector("[data-rows]")) { location.assign(address); return; }  // the traces are being indexed
    before.replaceWith(fresh.content);
    if (keep) history.pushState(null, "", rows().dataset.address);
    fill();
    if (model !== choices().model) await refresh();
  } catch {
    location.assign(address);
  }
}

const choices = () => JSON.parse(rows()?.dataset.choices ?? "{}");

// The address of the list with some values changed; an empty value is taken back.
function changed(values) {
  const address = new URL(rows().dataset.address, location.origin);
  address.searchParams.delete("page");
  for (const [name, value] of Object.entries(values)) address.searchParams.set(name, value);
  return address.pathname + address.search;
}

// Sets the fields to what the list shows, and marks the part of a bar that is chosen.
function fill() {
  wake();
  const chosen = choices(), shown = new URL(rows().dataset.address, location.origin).searchParams;
  for (const field of fields.elements) {
    if (!field.name || field.type === "hidden" || field === document.activeElement) continue;
    field.value = field.name === "order" ? shown.get("order") ?? "" : chosen[field.name] ?? "";
  }
  if (query.elements.where !== document.activeElement) query.elements.where.value = shown.get("where") ?? "";
  const fault = document.querySelector("#fault");
  query.elements.where.toggleAttribute("aria-invalid", fault !== null);
  if (fault) query.elements.where.setAttribute("aria-invalid", "true");
  for (const link of document.querySelectorAll("[data-label]")) {
    const same = link.dataset.label === chosen.label && link.dataset.criterion === chosen.criterion;
    if (same) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }
  for (const link of document.querySelectorAll("[data-view-link]")) {
    const values = new URLSearchParams(shown);
    values.set("view", new URL(link.href).searchParams.get("view"));
    link.search = values;
  }
}

let waiting;
fields?.addEventListener("input", ({ target }) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => show(changed({ [target.name]: target.value })), target.type === "search" ? 200 : 0);
});
fields?.addEventListener("submit", (event) => event.preventDefault());
query?.addEventListener("submit", (event) => {
  event.preventDefault();
  query.elements.where.blur();
  show(changed({ where: query.elements.where.value }));
});
addEventListener("popstate", () => { if (!location.hash && fields) show(location.pathname + location.search, false); });

document.addEventListener("click", (event) => {
  const link = event.target.closest(".pages a, [data-list], [data-label]");
  if (!link || !fields || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const { label, criterion } = link.dataset;
  // What else is chosen stays; a second press takes the choice back.
  const again = link.hasAttribute("aria-current");
  const address = label ? changed(again ? { label: "", criterion: "" } : { label, criterion }) : link.pathname + link.search;
  const turned = link.closest(".pages") !== null;
  show(address).then(() => { if (turned) document.querySelector(".count").scrollIntoView({ block: "start" }); });
});

// The list swaps at once when a column is chosen; the choice is remembered by the same cookie as without this script.
document.addEventListener("change", ({ target }) => {
  const form = target.closest("[data-columns]");
  if (!form) return;
  const columns = [...new FormData(form).getAll("column")];
  if (!columns.length) { target.checked = true; return; }
  document.cookie = `editloupe-columns=${columns.join(".")}; max-age=31536000; path=/; samesite=strict`;
  const name = target.value;
  show(changed({ columns: columns.join(",") })).then(() => {
    document.querySelector(".menu").open = true;
    document.querySelector(`[data-columns] [value="${name}"]`).focus();
  });
});

document.addEventListener("submit", async (event) => {
  const menu = event.target.closest("[data-queue]");
  if (!menu) return;
  event.preventDefault();
  const list = new URL(rows().dataset.address, location.origin).search;
  try {
    const { sentence, link } = await ask(menu.dataset.queue, { body: { list, title: event.target.elements.title.value } });
    const done = Object.assign(document.createElement("p"), { role: "status", className: "small", textContent: `${sentence} ` });
    done.append(Object.assign(document.createElement("a"), { href: link, textContent: "Label them" }));
    event.target.querySelector("[role=status]")?.remove();
    event.target.append(done);
  } catch (error) {
    say(error.message);
  }
});
// A menu closes when something else is pressed.
document.addEventListener("pointerdown", ({ target }) => document.querySelectorAll(".menu[open]").forEach((menu) => { menu.open = menu.contains(target); }));
document.addEventListener("keydown", ({ key }) => { if (key === "Escape") document.querySelectorAll(".menu[open]").forEach((menu) => { menu.open = false; menu.querySelector("summary").focus(); }); });
const wake = () => document.querySelectorAll("[data-queue] button").forEach((button) => { button.disabled = false; });
wake();

// Charts and statistics take a while: they come after the page.
async function load(around) {
  for (const fragment of around.querySelectorAll("[data-fragment]")) {
    try {
      fragment.innerHTML = await ask(fragment.dataset.fragment, { headers: { accept: "application/json" } });
    } catch (error) { fragment.textContent = error.message; }
    fragment.removeAttribute("aria-busy");
    await load(fragment);
  }
}
load(document);

// A batch that is still running is followed: what changed is fetched again, without leaving the page.
const FOLLOW = 3000;
const head = document.querySelector("[data-state]");
async function follow() {
  if (document.hidden || document.querySelector(".menu[open]") || rows()?.hasAttribute("aria-busy")) return;
  const { state, fault } = await ask(`${location.pathname}/state`);
  if (fault) throw new Error(fault);
  // What the page shows is as of the state it was made at, so that nothing written since is missed.
  if (state !== (rows() ?? head).dataset.state) await refresh();
}
async function refresh() {
  const turn = latest, address = location.pathname + location.search;
  const fresh = new DOMParser().parseFromString(await ask(address, { headers: { accept: "text/html" } }), "text/html");
  if (turn !== latest || address !== location.pathname + location.search || document.querySelector(".menu[open]")) return;
  const focused = document.activeElement?.closest("tr")?.dataset.edit;
  for (const now of document.querySelectorAll("[data-live], [data-rows]")) {
    const then = fresh.querySelector("live" in now.dataset ? `[data-live=${now.dataset.live}]` : "[data-rows]");
    if (then && !(now.dataset.live && now.contains(document.activeElement))) now.replaceWith(then);
  }
  head.dataset.state = fresh.querySelector("[data-state]")?.dataset.state ?? head.dataset.state;
  document.querySelector("[data-changed]")?.removeAttribute("hidden");
  wake();
  if (focused) document.querySelector(`tr[data-edit="${CSS.escape(focused)}"] .row-link`)?.focus({ preventScroll: true });
}
// What is wrong is said once: the run is gone, or the studio has ended.
let said = "";
if (head) setInterval(() => follow().then(() => { said = ""; }, ({ message }) => { if (message !== said) say(message); said = message; }), FOLLOW);

const press = (selector) => { const link = document.querySelector(selector); if (!link) return false; link.click(); return true; };
onKeys({
  "/": () => (fields?.elements.text ?? document.querySelector("[name=where]"))?.focus(),
  f: () => query?.elements.where.focus(),
  e: () => press("[data-by=edit]"),
  v: () => press("[data-by=verdict]"),
  w: () => press(".quick a"),
  j: () => step(document.querySelectorAll(".row-link"), 1),
  k: () => step(document.querySelectorAll(".row-link"), -1),
  "]": () => press(".pages [rel=next]"),
  "[": () => press(".pages [rel=prev]"),
});

// The thumbnails show the target; the whole pictures appear next to the pointer.
const peek = document.createElement("div");
peek.className = "peek";
peek.hidden = true;
document.body.append(peek);
document.addEventListener("pointerover", (event) => {
  const pair = event.target.closest?.(".pair");
  const whole = pair ? [...pair.querySelectorAll("[data-whole]")] : [];
  peek.hidden = !whole.length;
  if (!whole.length) return;
  peek.replaceChildren(...whole.map((thumb) => Object.assign(new Image(), { src: thumb.dataset.whole, alt: "" })));
  const around = pair.getBoundingClientRect();
  peek.style.left = `${around.right + 8}px`;
  peek.style.top = `${Math.max(8, Math.min(innerHeight - 220, around.top))}px`;
});
