// Crops of the same place in source, edited and reference picture, below the viewer. They move and zoom together.

const SMALLEST = 24;
const CONTEXT = 1.7;

export class Loupes {
  // Without target boxes, the places are where the two pictures differ most, which the server measures.
  constructor(viewer, root) {
    this.viewer = viewer;
    this.root = root;
    this.glasses = [...root.querySelectorAll("[data-loupe]")].map((figure) => ({
      role: figure.dataset.loupe, glass: figure.querySelector(".glass"), picture: figure.querySelector("img"),
    }));
    this.choices = root.querySelector(".loupe-choices");
    this.note = root.querySelector(".loupe-note");
    this.places = [];
    this.factor = 1;
    for (const { picture } of this.glasses) picture.addEventListener("load", () => this.draw());
    this.#listen();
    this.#load();
  }

  async #load() {
    const { source, edited } = this.root.dataset;
    if (this.viewer.targets.length) {
      this.#setPlaces(this.viewer.targets, "Target");
      return;
    }
    try {
      const answer = await fetch(`/pictures/${source}/regions/${edited}`);
      if (!answer.ok) throw new Error();
      this.#setPlaces(await answer.json(), "Difference");
    } catch {
      this.note.textContent = "The pictures could not be compared.";
    }
  }

  #setPlaces(boxes, name) {
    this.places = boxes;
    this.note.textContent = boxes.length ? "" : "No target is annotated, and no difference was measured.";
    this.choices.replaceChildren(...boxes.map((_, number) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = boxes.length > 1 ? `${name} ${number + 1}` : name;
      button.addEventListener("click", () => { this.choose(number); this.viewer.focusOn(this.places[number]); });
      return button;
    }));
    this.choose(0);
  }

  choose(number) {
    this.place = this.places[number];
    if (!this.place) return;
    const [x1, y1, x2, y2] = this.place;
    this.centre = [(x1 + x2) / 2, (y1 + y2) / 2];
    this.factor = 1;
    [...this.choices.children].forEach((button, at) => button.setAttribute("aria-pressed", String(at === number)));
    this.draw();
  }

  // Pixels of the glass for a pixel of the source.
  #scale(glass) {
    const [x1, y1, x2, y2] = this.place;
    const [width, height] = [Math.max(SMALLEST, x2 - x1), Math.max(SMALLEST, y2 - y1)];
    return Math.min(glass.clientWidth / width, glass.clientHeight / height) / CONTEXT * this.factor;
  }

  draw() {
    if (!this.place) return;
    const [width, height] = this.viewer.size;
    for (const { glass, picture } of this.glasses) {
      const scale = this.#scale(glass);
      const [left, top] = [glass.clientWidth / 2 - this.centre[0] * scale, glass.clientHeight / 2 - this.centre[1] * scale];
      picture.style.width = `${width * scale}px`;
      picture.style.height = `${height * scale}px`;
      picture.style.transform = `translate(${left}px, ${top}px)`;
      picture.classList.toggle("pixels", scale * (width / (picture.naturalWidth || width)) > 3);
    }
  }

  #listen() {
    let last = null;
    for (const { glass } of this.glasses) {
      glass.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        last = [event.clientX, event.clientY];
        glass.setPointerCapture(event.pointerId);
      });
      glass.addEventListener("pointermove", (event) => {
        if (!last || !this.place) return;
        const scale = this.#scale(glass);
        this.centre = [this.centre[0] - (event.clientX - last[0]) / scale, this.centre[1] - (event.clientY - last[1]) / scale];
        last = [event.clientX, event.clientY];
        this.draw();
      });
      for (const end of ["pointerup", "pointercancel"]) glass.addEventListener(end, () => { last = null; });
      glass.addEventListener("wheel", (event) => {
        const before = this.factor;
        this.factor = Math.max(0.1, Math.min(8, this.factor * Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016))));
        if (this.factor !== before) event.preventDefault();
        this.draw();
      }, { passive: false });
    }
    new ResizeObserver(() => this.draw()).observe(this.root);
  }
}
