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

function typing(event) {
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

// Enlarged pictures: the page's pictures in turn, with zoom. A picture of two halves, as tools draw them, can blink between them.
const LINE = (width) => Math.max(4, Math.floor(width / 100));

class Lightbox {
  constructor(dialog) {
    this.dialog = dialog;
    this.glass = dialog.querySelector(".glass");
    this.picture = dialog.querySelector("img");
    this.blink = dialog.querySelector("[data-halves]");
    [this.zoom, this.centre] = [1, [0.5, 0.5]];
    this.picture.addEventListener("load", () => { this.halves = findHalves(this.picture); this.blink.hidden = !this.halves; this.fit(); });
    new ResizeObserver(() => this.draw()).observe(this.glass);
    this.#listen();
  }

  get all() { return [...document.querySelectorAll("[data-picture]")].filter((shot) => shot.checkVisibility()); }

  show(shot) {
    this.shot = shot;
    const { all, dialog } = this;
    this.#stop();
    this.halves = null;
    this.picture.src = shot.dataset.picture;
    this.picture.alt = shot.dataset.caption;
    const position = all.length > 1 ? ` (${all.indexOf(shot) + 1} of ${all.length})` : "";
    dialog.querySelector("figcaption").textContent = shot.dataset.caption + position;
    for (const button of dialog.querySelectorAll("[data-turn]")) button.disabled = !all[all.indexOf(shot) + Number(button.dataset.turn)];
    if (!dialog.open) dialog.showModal();
  }

  turn(by) {
    const { all } = this;
    const next = all[all.indexOf(this.shot) + by];
    if (next) this.show(next);
    return Boolean(next);
  }

  fit() { this.zoom = 1; this.centre = [0.5, 0.5]; this.draw(); }

  zoomBy(factor) { this.zoom = Math.max(1, Math.min(40, this.zoom * factor)); this.draw(); }

  // The part that is shown, in pixels of the picture: all of it, or one half.
  get #part() {
    const { naturalWidth, naturalHeight } = this.picture;
    return this.side === undefined ? [0, naturalWidth, naturalHeight] : [this.halves[this.side], this.halves[2], naturalHeight];
  }

  #stop() { clearInterval(this.blinking); this.side = undefined; this.blink.setAttribute("aria-pressed", "false"); }

  toggleBlink() {
    if (!this.halves) return false;
    if (this.side !== undefined) { this.#stop(); this.fit(); return true; }
    this.side = 0;
    this.blink.setAttribute("aria-pressed", "true");
    this.blinking = setInterval(() => { this.side = 1 - this.side; this.draw(); }, 650);
    this.fit();
    return true;
  }

  draw() {
    const { picture, glass } = this;
    const [x, width, height] = this.#part;
    if (!width) return;
    const scale = Math.min(glass.clientWidth / width, glass.clientHeight / height) * this.zoom;
    const room = 0.5 / this.zoom;
    this.centre = this.centre.map((value) => Math.max(room, Math.min(1 - room, value)));
    const [left, top] = [glass.clientWidth / 2 - (x + this.centre[0] * width) * scale, glass.clientHeight / 2 - this.centre[1] * height * scale];
    picture.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
    const edge = this.side === undefined ? 0 : 1; // of the line, which a fraction of a pixel would let in
    picture.style.clipPath = `inset(0 ${picture.naturalWidth - x - width + edge}px 0 ${x + edge}px)`;
    this.dialog.querySelector("[data-half]").textContent = ["left half", "right half"][this.side] ?? "";
    picture.classList.toggle("pixels", scale > 3);
    this.scale = scale;
    this.dialog.querySelector("[data-zoom-level]").textContent = `${Math.round(this.zoom * 100)} %`;
  }

  #listen() {
    const { dialog, glass } = this;
    dialog.addEventListener("click", (event) => {
      const { turn, enlarge, halves } = event.target.closest("button")?.dataset ?? {};
      if (turn) this.turn(Number(turn));
      if (enlarge === "fit") this.fit();
      else if (enlarge) this.zoomBy(enlarge === "in" ? 1.6 : 1 / 1.6);
      if (halves !== undefined) this.toggleBlink();
    });
    dialog.addEventListener("keydown", (event) => {
      const act = {
        ArrowLeft: () => this.turn(-1), ArrowRight: () => this.turn(1), b: () => this.toggleBlink(), 0: () => this.fit(),
        "+": () => this.zoomBy(1.6), "=": () => this.zoomBy(1.6), "-": () => this.zoomBy(1 / 1.6),
      }[event.key];
      if (act && !event.ctrlKey && !event.metaKey && act() !== false) event.preventDefault();
    });
    dialog.addEventListener("close", () => { this.#stop(); this.shot?.focus({ preventScroll: true }); });
    glass.addEventListener("wheel", (event) => { this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016))); event.preventDefault(); }, { passive: false });
    glass.addEventListener("pointerdown", (event) => { if (event.button === 0) { this.held = [event.clientX, event.clientY]; glass.setPointerCapture(event.pointerId); } });
    glass.addEventListener("pointermove", (event) => {
      if (!this.held) return;
      const [, width, height] = this.#part;
      this.centre = [this.centre[0] - (event.clientX - this.held[0]) / width / this.scale, this.centre[1] - (event.clientY - this.held[1]) / height / this.scale];
      this.held = [event.clientX, event.clientY];
      this.draw();
    });
    for (const end of ["pointerup", "pointercancel"]) glass.addEventListener(end, () => { this.held = null; });
  }
}

// Where the two halves of a picture begin, and their width; null if no red line divides it in the middle.
function findHalves(picture) {
  const { naturalWidth: whole, naturalHeight: height } = picture;
  const width = [4, LINE(whole / 2), LINE(whole / 2) - 1].map((line) => (whole - line) / 2).find((half) => 2 * half + LINE(half) === whole);
  if (!width || !height) return null;
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height });
  const drawing = canvas.getContext("2d");
  drawing.drawImage(picture, width + 1, 0, 1, height, 0, 0, 1, height);
  const colours = drawing.getImageData(0, 0, 1, height).data;
  for (let at = 0; at < colours.length; at += 4) if (colours[at] < 160 || colours[at + 1] > 90 || colours[at + 2] > 90) return null;
  return [0, width + LINE(width), width];
}

const box = document.querySelector("dialog.lightbox");
const lightbox = box ? new Lightbox(box) : null;
document.addEventListener("click", (event) => {
  const shot = event.target.closest("[data-picture]");
  if (shot) lightbox.show(shot);
  else if (event.target === box) box.close();
});

// A form that only a script can send: until the script is there its buttons are disabled, and the browser sends nothing by itself.
export function onSubmit(form, send) {
  form.addEventListener("submit", (event) => { event.preventDefault(); send(event); });
  for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = false;
}

document.addEventListener("change", ({ target }) => {
  const form = target.closest("[data-autosubmit]");
  if (!form) return;
  // Another criterion has its own verdicts: what was chosen for the old one does not carry over.
  if (target.name === "criterion") form.querySelectorAll("[name=repeat], [name=beside]").forEach((one) => { one.disabled = true; });
  if (target.name === "repeat") form.querySelectorAll("[name=beside]").forEach((one) => { one.disabled = true; });
  form.querySelectorAll("select").forEach((one) => { if (!one.value) one.disabled = true; });
  form.submit();
});
