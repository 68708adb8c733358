// The list of runs: find, order, choose two to compare. Scores come after the page, one by one.
import { ask, onKeys, step } from "./common.js";

const form = document.querySelector("[data-runs]");
const find = document.querySelector("[data-find-run] input");
const body = form?.querySelector("tbody");
const FOLLOW = 3000;
const shown = new URLSearchParams(location.search);
const valueOf = (row, name) => row.querySelector(`[data-of=${name}]`)?.dataset.value ?? "";

function compare(one, other, name) {
  const [a, b] = [valueOf(one, name), valueOf(other, name)];
  if (!a || !b) return a ? -1 : b ? 1 : 0;  // what has no value is last in both directions
  const order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
  return (shown.get("order") ?? "").startsWith("-") ? -order : order;
}

// The address holds what is looked for and the order.
function show() {
  const order = shown.get("order") ?? "", name = order.replace("-", ""), text = (shown.get("text") ?? "").toLowerCase();
  if (name) body.append(...[...body.rows].sort((one, other) => compare(one, other, name)));
  for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(text);
  for (const button of form.querySelectorAll("[data-sort]")) {
    const head = button.closest("th"), same = button.dataset.sort === name;
    if (same) head.setAttribute("aria-sort", order.startsWith("-") ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
  }
  history.replaceState(null, "", `${location.pathname}${shown.size ? `?${shown}` : ""}`);
}

function mark() {
  const count = form.querySelectorAll("[name=chosen]:checked").length;
  const button = form.querySelector("[type=submit]");
  button.disabled = count < 2;
  button.textContent = count > 2 ? "Rank them" : "Compare two";
}

if (form) {
  find.value = shown.get("text") ?? "";
  find.addEventListener("input", () => { if (find.value) shown.set("text", find.value); else shown.delete("text"); show(); });
  find.form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("click", ({ target }) => {
    const name = target.closest("[data-sort]")?.dataset.sort;
    if (!name) return;
    const first = ["name", "judge"].includes(name) ? name : `-${name}`;
    const second = first === name ? `-${name}` : name;
    const now = shown.get("order");
    if (now === second) shown.delete("order"); else shown.set("order", now === first ? second : first);
    show();
  });
  form.addEventListener("change", mark);
  mark();
  show();
  count();
  setInterval(() => follow().catch(() => {}), FOLLOW);
}

// A run that is being judged is followed. Its score is computed when nothing more has come for a while.
async function follow() {
  if (document.hidden) return;
  const states = await ask("/run-states");
  const known = Object.fromEntries([...body.rows].map((row) => [row.dataset.run, row.dataset.state]));
  if (Object.keys(states).every((key) => states[key] === known[key]) && Object.keys(known).every((key) => key in states)) { await count(); return; }
  const page = new DOMParser().parseFromString(await ask("/runs", { headers: { accept: "text/html" } }), "text/html");
  const name = (row) => row.dataset.score ?? row.dataset.run;
  const before = Object.fromEntries([...body.rows].map((row) => [name(row), row]));
  const fresh = [...page.querySelectorAll("[data-runs] tbody tr")].map((row) => {
    const old = before[name(row)];
    if (!old || old.dataset.state === row.dataset.state) return old ?? row;
    for (const part of ["score", "agreement"]) row.querySelector(`[data-of=${part}]`)?.replaceWith(old.querySelector(`[data-of=${part}]`) ?? "");
    const [box, was] = [row, old].map((one) => one.querySelector("[name=chosen]"));
    if (box && was) box.checked = was.checked;
    return row;
  });
  const focus = document.activeElement, row = focus.closest("[data-runs] tbody tr");
  body.replaceChildren(...fresh);
  form.querySelector(".count").textContent = page.querySelector("[data-runs] .count").textContent;
  mark();
  show();
  if (row) fresh.find((one) => name(one) === name(row))?.querySelector(focus.name === "chosen" ? "[name=chosen]" : ".row-link")?.focus({ preventScroll: true });
}

async function count() {
  for (const row of form.querySelectorAll("[data-score]:not([data-counted])")) {
    row.dataset.counted = "";
    const [score, agreement] = ["score", "agreement"].map((name) => row.querySelector(`[data-of=${name}]`));
    const put = (cell, text, value, title = "") => {
      cell.dataset.value = value ?? "";
      Object.assign(cell.querySelector("span"), { textContent: text || "–", title });
    };
    // The criteria with the least agreement, by their initials; all of them are in the title.
    const short = ({ title, words }) => `${title.split(" ").map((word) => word[0]).join("")} ${words}`;
    const long = ({ title, words, why }) => `${title} ${words}${why ? ` (${why})` : ""}`;
    try {
      const found = await ask(row.dataset.score);
      put(score, found.score, found.value, found.answer);
      put(agreement, found.agreement.slice(0, 2).map(short).join("\n"), found.least, found.agreement.map(long).join("\n"));
    } catch (error) {
      put(score, "–", null, error.message);
      put(agreement, "–", null, error.message);
    }
  }
  if (/score|agreement/.test(shown.get("order") ?? "")) show();
}

onKeys({
  "/": () => find?.focus(),
  j: () => step(document.querySelectorAll("tr:not([hidden]) .row-link"), 1),
  k: () => step(document.querySelectorAll("tr:not([hidden]) .row-link"), -1),
});
