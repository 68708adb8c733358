// What every page shares: requests, the keys dialog, enlarged pictures, short messages.

export async function ask(address, { body, method = body === undefined ? "GET" : "POST", type = "application/json", headers = {} } = {}) {
  const sent = body === undefined || body instanceof Blob ? body : JSON.stringify(body);
  const options = { method, headers: { ...headers } };
  if (method !== "GET") {
    options.body = sent ?? "";
    options.headers["content-type"] = type;
  }
  const answer = await fetch(address, options).catch(() => {
    throw new Error("The studio does not answer. Is it still running?");
  });
  const isJson = (answer.headers.get("content-type") || "").includes("json");
  const content = isJson ? await answer.json() : await answer.text();
  if (!answer.ok) throw new Error(isJson ? content.sentence : content);
  return content;
}

let hiding;
export function say(sentence) {
  const toast = document.querySelector(".toast");
  toast.textContent = sentence;
  toast.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { toast.hidden = true; }, 5000);
}

export function typing(event) {
  const at = event.target;
  return at instanceof HTMLElement && (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName));
}

// Calls the action of a key unless somebody is typing or a dialog is open.
export function onKeys(actions, signal) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
    if (document.querySelector("dialog[open]") || event.defaultPrevented) return;
    const action = actions[event.key];
    if (action && action(event) !== false) event.preventDefault();
  }, { signal });
}

// Moves the focus to the next or previous of some elements.
export function step(elements, by) {
  const all = [...elements];
  if (!all.length) return false;
  const here = all.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
  const next = all[Math.max(0, Math.min(all.length - 1, here === -1 ? (by > 0 ? 0 : all.length - 1) : here + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

document.querySelector("[data-keys]")?.addEventListener("click", () => document.querySelector("dialog.keys").showModal());
onKeys({ "?": () => document.querySelector("dialog.keys").showModal() });

// Enlarged pictures; the arrow keys go through all pictures of the page that can be enlarged.
const box = document.querySelector("dialog.lightbox");
let enlarged = null;
function enlarge(shot) {
  enlarged = shot;
  const picture = box.querySelector("img");
  picture.src = shot.dataset.picture;
  picture.alt = shot.dataset.caption;
  const all = [...document.querySelectorAll("[data-picture]")];
  const position = all.length > 1 ? ` (${all.indexOf(shot) + 1} of ${all.length})` : "";
  box.querySelector("figcaption").textContent = shot.dataset.caption + position;
  if (!box.open) box.showModal();
}
document.addEventListener("click", (event) => {
  const shot = event.target.closest("[data-picture]");
  if (shot) enlarge(shot);
  else if (event.target === box) box.close();
});
box?.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const all = [...document.querySelectorAll("[data-picture]")];
  const next = by && all[all.indexOf(enlarged) + by];
  if (next) { enlarge(next); event.preventDefault(); }
});

// A form that only a script can send: until the script is there its buttons are disabled, and the browser sends nothing by itself.
export function onSubmit(form, send) {
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = false;
}

for (const form of document.querySelectorAll("[data-autosubmit]")) {
  form.addEventListener("change", (event) => {
    // Another criterion has its own verdicts: what was chosen for the old one does not carry over.
    if (event.target.name === "criterion") form.querySelectorAll("[name=repeat], [name=beside]").forEach((one) => { one.disabled = true; });
    if (event.target.name === "repeat") form.querySelectorAll("[name=beside]").forEach((one) => { one.disabled = true; });
    form.querySelectorAll("select").forEach((one) => { if (!one.value) one.disabled = true; });
    form.submit();
  });
}
