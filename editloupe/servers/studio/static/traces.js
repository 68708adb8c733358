// The list of traces: keys, and statistics that come when they are asked for.
import { ask, onKeys, step } from "./common.js";

const form = document.querySelector("[data-ask]");
form?.querySelector("select")?.addEventListener("change", () => form.requestSubmit());

const statistics = document.querySelector("[data-statistics]");
statistics?.addEventListener("toggle", async () => {
  // What is open stays open on the next page of the same filter.
  history.replaceState(null, "", statistics.open ? "#statistics" : location.pathname + location.search);
  if (!statistics.open || statistics.dataset.loaded) return;
  statistics.dataset.loaded = "yes";
  const place = statistics.querySelector("div");
  try {
    place.innerHTML = await ask(statistics.dataset.statistics, { headers: { accept: "application/json" } });
  } catch (error) {
    place.textContent = error.message;
    delete statistics.dataset.loaded;
  }
});
if (statistics && location.hash === "#statistics") statistics.open = true;

const press = (selector) => { const link = document.querySelector(selector); if (!link) return false; link.click(); return true; };
onKeys({
  "/": () => form.querySelector("[name=where]").focus(),
  j: () => step(document.querySelectorAll(".row-link"), 1),
  k: () => step(document.querySelectorAll(".row-link"), -1),
  "]": () => press(".pages [rel=next]"),
  "[": () => press(".pages [rel=prev]"),
});
