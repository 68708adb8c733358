import { ask, onKeys, step } from "./common.js";

const form = document.querySelector("[data-filters]");
let latest = 0;

// Swaps the rows without leaving the page; the address says what is shown, so that it can be kept and shared.
async function show(address, keep = true) {
  const turn = ++latest;
  const rows = document.querySelector("[data-rows]");
  rows.setAttribute("aria-busy", "true");
  try {
    const html = await ask(address, { headers: { "x-part": "rows", accept: "text/html" } });
    if (turn !== latest) return;
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    rows.replaceWith(fresh.content);
    if (keep) history.pushState(null, "", address);
  } catch {
    location.assign(address);
  }
}

function chosen() {
  const values = [...new FormData(form)].filter(([name, value]) => value && !(name === "order" && value === "manifest"));
  return `${form.getAttribute("action")}?${new URLSearchParams(values)}`;
}

let waiting;
form?.addEventListener("input", (event) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => show(chosen()).then(() => { if (event.target.name === "model") refresh(); }), event.target.type === "search" ? 200 : 0);
});
form?.addEventListener("submit", (event) => { event.preventDefault(); show(chosen()); });
// Another judge's verdicts are another page: only the rows of the same one are swapped.
const judgedBy = (search) => new URLSearchParams(search).get("configuration") ?? "";
addEventListener("popstate", () => {
  if (location.hash || !form) return;
  if (judgedBy(location.search) !== (form.elements.configuration?.value ?? "")) { location.reload(); return; }
  fill(location.search); show(location.pathname + location.search, false);
});

// Sets the fields to what an address asks for, and marks the chart's part that is chosen.
function fill(search) {
  const values = new URLSearchParams(search);
  for (const field of form.elements) if (field.name && field.type !== "hidden") field.value = values.get(field.name) ?? (field.name === "order" ? "manifest" : "");
  for (const link of document.querySelectorAll("[data-filter]")) {
    const own = new URL(link.href).searchParams;
    const same = own.get("label") === values.get("label") && own.get("criterion") === values.get("criterion");
    link.toggleAttribute("aria-current", same);
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest(".pages a, [data-filter], [data-model], [data-clear], .count a");
  if (!link || !form || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const address = new URL(link.href);
  if ("filter" in link.dataset) {
    // What else is chosen stays; a second press takes the choice back.
    const again = link.hasAttribute("aria-current");
    const own = address.searchParams;
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    for (const name of ["criterion", "label"]) if (again) wanted.delete(name); else wanted.set(name, own.get(name));
    address.search = wanted;
  }
  fill(address.search);
  const turned = link.closest(".pages") !== null;
  show(address.pathname + address.search).then(() => { if (turned) document.querySelector(".count").scrollIntoView({ block: "start" }); });
});

// Charts and statistics take a while: they come after the page.
const fragment = document.querySelector("[data-fragment]");
if (fragment) {
  ask(fragment.dataset.fragment, { headers: { accept: "application/json" } })
    .then((html) => { fragment.innerHTML = html; })
    .catch((error) => { fragment.textContent = error.message; });
}

// A batch that is still running is followed: what changed is fetched again, without leaving the page.
const FOLLOW = 3000;
let seen;
async function follow() {
  if (document.hidden) return;
  const { state } = await ask(`${location.pathname}/state`);
  const changed = seen !== undefined && state !== seen;
  seen = state;
  if (changed) await refresh();
}
async function refresh() {
  const fresh = new DOMParser().parseFromString(await ask(location.pathname + location.search, { headers: { accept: "text/html" } }), "text/html");
  const focused = document.activeElement?.closest("tr")?.dataset.edit;
  for (const selector of ["[data-live].charts", ".page-head [data-live]", "[data-rows]"]) {
    const now = document.querySelector(selector), then = fresh.querySelector(selector);
    if (now && then) now.replaceWith(then);
  }
  if (focused) document.querySelector(`tr[data-edit="${CSS.escape(focused)}"] .row-link`)?.focus({ preventScroll: true });
}
setInterval(() => follow().catch(() => {}), FOLLOW);

const press = (selector) => { const link = document.querySelector(selector); if (!link) return false; link.click(); return true; };
onKeys({
  "/": () => form?.querySelector("[name=text]").focus(),
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
