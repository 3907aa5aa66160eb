// Images of the map's points, fetched in groups when they come into view.

import * as api from "./api.js";

export class Pictures {
  constructor(side, version, signal, changed) {
    Object.assign(this, { side, version, signal, changed });
    this.items = new Map();
    this.images = new Map();
    this.wanted = new Set();
  }

  // An image that can be drawn, or null until it has arrived.
  image(row) {
    const image = this.images.get(row);
    if (image) return image.complete && image.naturalWidth ? image : null;
    const item = this.items.get(row);
    if (item) {
      const made = new Image();
      made.addEventListener("load", this.changed, { once: true });
      made.src = item.thumbnail;
      this.images.set(row, made);
    } else {
      this.want(row);
    }
    return null;
  }

  want(row) {
    if (!this.wanted.size) setTimeout(() => this.fetch(), 60);
    this.wanted.add(row);
  }

  async fetch() {
    const rows = [...this.wanted];
    this.wanted.clear();
    await this.some(rows).catch(() => {}); // the map stays as it is: points without pictures
    this.changed();
  }

  // The items of some rows, in their order.
  async some(rows) {
    const missing = rows.filter((row) => !this.items.has(row)).slice(0, 200);
    if (missing.length) {
      const { items } = await api.mapItems({ side: this.side, version: this.version, row: missing }, this.signal);
      for (const item of items) this.items.set(item.row, item);
    }
    return rows.map((row) => this.items.get(row)).filter(Boolean);
  }
}
