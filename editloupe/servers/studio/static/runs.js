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
form.addEventListener("input", (event) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => show(chosen()), event.target.type === "search" ? 200 : 0);
});
form.addEventListener("submit", (event) => { event.preventDefault(); show(chosen()); });
// Another judge's verdicts are another page: only the rows of the same one are swapped.
const judgedBy = (search) => new URLSearchParams(search).get("configuration") ?? "";
addEventListener("popstate", () => {
  if (location.hash) return;
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
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
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

// The report's charts take a while: they come after the page.
const charts = document.querySelector("[data-charts]");
async function loadCharts() {
  if (!charts.open || charts.dataset.loaded) return;
  charts.dataset.loaded = "yes";
  const place = charts.querySelector("div");
  try {
    place.innerHTML = await ask(charts.dataset.charts, { headers: { accept: "application/json" } });
  } catch (error) {
    place.textContent = error.message;
  }
}
charts?.addEventListener("toggle", loadCharts);
if (charts?.open) loadCharts();

const press = (selector) => { const link = document.querySelector(selector); if (!link) return false; link.click(); return true; };
onKeys({
  "/": () => form.querySelector("[name=text]").focus(),
  j: () => step(document.querySelectorAll(".row-link"), 1),
  k: () => step(document.querySelectorAll(".row-link"), -1),
  "]": () => press(".pages [rel=next]"),
  "[": () => press(".pages [rel=prev]"),
});
