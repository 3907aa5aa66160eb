// The map on a canvas: a camera, points, names of branches, and the images themselves where there is room.

const MARGIN = 0.06;
const MOST_PICTURES = 90;
const NEAREST = 400; // times as large as the whole
const LAYERS = 16;

export class MapCanvas {
  constructor(canvas, points, { colours, pictureOf }) {
    Object.assign(this, { canvas, points, colours, pictureOf });
    this.context = canvas.getContext("2d");
    this.whole = points.bounds(Array(points.count).keys());
    this.camera = this.home();
    this.branch = [];
    this.marks = []; // { row, colour } rings around results
    this.query = null; // [x, y]
    this.lasso = null;
    this.hovered = -1;
    this.drawn = 0;
  }

  resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    this.ratio = Math.min(2, devicePixelRatio || 1);
    this.width = width; this.height = height;
    this.canvas.width = Math.max(1, Math.round(width * this.ratio));
    this.canvas.height = Math.max(1, Math.round(height * this.ratio));
    this.draw();
  }

  // At zoom 1 all points are in view.
  get scale() {
    const { left, top, right, bottom } = this.whole;
    return Math.min(this.width / Math.max(right - left, 0.01), this.height / Math.max(bottom - top, 0.01)) * (1 - 2 * MARGIN) * this.camera.zoom;
  }
  home() { return { x: (this.whole.left + this.whole.right) / 2, y: (this.whole.top + this.whole.bottom) / 2, zoom: 1 }; }
  toScreen(x, y) { return [(x - this.camera.x) * this.scale + this.width / 2, (y - this.camera.y) * this.scale + this.height / 2]; }
  toMap(x, y) { return [(x - this.width / 2) / this.scale + this.camera.x, (y - this.height / 2) / this.scale + this.camera.y]; }
  view() {
    const [left, top] = this.toMap(0, 0), [right, bottom] = this.toMap(this.width, this.height);
    return { left, top, right, bottom };
  }

  look({ x = this.camera.x, y = this.camera.y, zoom = this.camera.zoom }) {
    const inside = (value) => Math.min(1, Math.max(0, value));
    this.camera = { x: inside(x), y: inside(y), zoom: Math.min(NEAREST, Math.max(1, zoom)) };
    this.draw();
  }

  // Zoom so that the place under the pointer stays there.
  zoomAt(px, py, factor) {
    const [x, y] = this.toMap(px, py);
    const zoom = Math.min(NEAREST, Math.max(1, this.camera.zoom * factor));
    const scale = this.scale / this.camera.zoom * zoom;
    this.look({ x: x - (px - this.width / 2) / scale, y: y - (py - this.height / 2) / scale, zoom });
  }

  fit({ left, top, right, bottom }) {
    const room = Math.min((this.whole.right - this.whole.left) / Math.max(right - left, 0.004), (this.whole.bottom - this.whole.top) / Math.max(bottom - top, 0.004));
    this.look({ x: (left + right) / 2, y: (top + bottom) / 2, zoom: 0.85 * room });
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const { context, ratio } = this;
    this.visible = [...this.points.inBox(this.view())];
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.paintPoints();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (this.showsPictures) this.paintPictures();
    this.paintMarks();
    this.paintNames();
    this.paintLasso();
    this.drawn++;
  }

  get showsPictures() { return this.visible.length <= MOST_PICTURES || this.camera.zoom >= NEAREST; }
  get radius() {
    // Very many on a small screen are smaller, or they would be one surface.
    const least = Math.min(1.1, Math.max(0.6, 0.42 * Math.sqrt((this.width * this.height) / this.points.count)));
    return Math.min(6, Math.max(least, 55 / Math.sqrt(this.points.count) * Math.sqrt(this.camera.zoom)));
  }

  // One colour after the other, since setting the colour is what takes time; but in several layers: in one, the branch that is
  // drawn last would hide the others where they lie close together. Those outside the branch come first.
  paintPoints() {
    const { context, ratio, points } = this;
    const { group } = this.colouring, palette = this.colours();
    const size = this.radius * ratio, scale = this.scale * ratio;
    const left = this.canvas.width / 2 - this.camera.x * scale, top = this.canvas.height / 2 - this.camera.y * scale;
    const colours = palette.groups.length + 1, parts = new Map();
    this.visible.forEach((row, place) => {
      const at = group[row] < 0 ? -1 : (place % LAYERS) * colours + Math.min(group[row], palette.groups.length);
      if (!parts.has(at)) parts.set(at, []);
      parts.get(at).push(row);
    });
    const round = this.visible.length < 4000;
    for (const at of [...parts.keys()].sort((a, b) => a - b)) {
      context.fillStyle = at < 0 ? palette.outside : palette.groups[at % colours] ?? palette.other;
      if (round) context.beginPath();
      for (const row of parts.get(at)) {
        const x = points.x(row) * scale + left, y = points.y(row) * scale + top;
        if (round) { context.moveTo(x + size, y); context.arc(x, y, size, 0, 7); } else context.fillRect(x - size, y - size, 2 * size, 2 * size);
      }
      if (round) context.fill();
    }
  }

  paintPictures() {
    const side = Math.min(72, Math.max(28, Math.sqrt((this.width * this.height) / Math.max(1, this.visible.length)) * 0.55));
    for (const row of this.visible.slice(0, MOST_PICTURES)) {
      const image = this.pictureOf(row);
      if (!image) continue;
      const [x, y] = this.toScreen(this.points.x(row), this.points.y(row));
      this.context.fillStyle = "#fff";
      this.context.fillRect(x - side / 2, y - side / 2, side, side);
      const part = Math.min(side / image.width, side / image.height);
      this.context.drawImage(image, x - (part * image.width) / 2, y - (part * image.height) / 2, part * image.width, part * image.height);
    }
  }

  ring(x, y, radius, colour, width) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 7);
    this.context.stroke();
  }

  paintMarks() {
    const palette = this.colours();
    const radius = this.radius + 4;
    const around = (x, y, wide, colour) => { this.ring(x, y, wide, palette.page, 5); this.ring(x, y, wide, colour, 3); };
    for (const { row, colour } of this.marks) around(...this.toScreen(this.points.x(row), this.points.y(row)), radius, palette.resolve(colour));
    if (this.hovered >= 0) around(...this.toScreen(this.points.x(this.hovered), this.points.y(this.hovered)), radius + 1, palette.ink);
    if (this.query) {
      const [x, y] = this.toScreen(...this.query);
      around(x, y, radius + 4, palette.query);
      around(x, y, radius + 9, palette.query);
    }
  }

  // The nearer, the finer.
  names() {
    const finest = Math.max(0, ...this.points.names.map((names) => names.length));
    const below = 1 + Math.floor(Math.log2(this.camera.zoom / (this.branchZoom ?? 1) + 0.01) / 2);
    return this.points.named(this.branch, Math.min(finest, this.branch.length + Math.max(1, below)));
  }

  // Names of the branches where they are, the largest first; one that would lie over another is left out.
  paintNames() {
    const { context } = this, palette = this.colours(), taken = [];
    context.font = `600 13px ${palette.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    for (const { name, middle } of this.names()) {
      if (taken.length > 60) break;
      const [x, y] = this.toScreen(...middle);
      const half = context.measureText(name).width / 2 + 4;
      const box = [x - half, y - 10, x + half, y + 10];
      if (box[0] < 0 || box[1] < 0 || box[2] > this.width || box[3] > this.height) continue;
      if (taken.some((one) => box[0] < one[2] && box[2] > one[0] && box[1] < one[3] && box[3] > one[1])) continue;
      taken.push(box);
      context.lineWidth = 4;
      context.strokeStyle = palette.page;
      context.strokeText(name, x, y);
      context.fillStyle = palette.ink;
      context.fillText(name, x, y);
    }
  }

  paintLasso() {
    if (!this.lasso || this.lasso.length < 2) return;
    const { context } = this, palette = this.colours();
    context.beginPath();
    for (const [x, y] of this.lasso) context.lineTo(...this.toScreen(x, y));
    context.closePath();
    context.globalAlpha = 0.12;
    context.fillStyle = palette.accent;
    context.fill();
    context.globalAlpha = 1;
    context.setLineDash([6, 4]);
    context.strokeStyle = palette.accent;
    context.lineWidth = 2;
    context.stroke();
    context.setLineDash([]);
  }
}
