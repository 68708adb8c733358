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
addEventListener("popstate", () => location.reload());

document.addEventListener("click", (event) => {
  const link = event.target.closest(".pages a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  show(link.getAttribute("href")).then(() => document.querySelector(".count").scrollIntoView({ block: "start" }));
});

// The report's charts take a while: they come after the page.
const charts = document.querySelector("[data-charts]");
charts?.addEventListener("toggle", async () => {
  if (!charts.open || charts.dataset.loaded) return;
  charts.dataset.loaded = "yes";
  const place = charts.querySelector("div");
  try {
    place.innerHTML = await ask(charts.dataset.charts, { headers: { accept: "application/json" } });
  } catch (error) {
    place.textContent = error.message;
  }
});
if (charts && "atOnce" in charts.dataset) charts.open = true;

const press = (selector) => { const link = document.querySelector(selector); if (!link) return false; link.click(); return true; };
onKeys({
  "/": () => form.querySelector("[name=text]").focus(),
  j: () => step(document.querySelectorAll(".row-link"), 1),
  k: () => step(document.querySelectorAll(".row-link"), -1),
  "]": () => press(".pages [rel=next]"),
  "[": () => press(".pages [rel=prev]"),
});
