// Texts of the page whose contrast to their ground is below 4.5:1.
() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = ([r, g, b]) => { const f = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
    const over = (top, base) => { const a = top[3] / 255; return top.slice(0, 3).map((c, i) => a * c + (1 - a) * base[i]); };
    const ground = (one) => { const stack = []; for (let at = one; at; at = at.parentElement) stack.push(rgb(getComputedStyle(at).backgroundColor)); return stack.reverse().reduce((base, top) => over(top, base), [255, 255, 255]); };
    const found = [];
    for (const one of document.querySelectorAll("body *")) {
        if (![...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
        if (!one.checkVisibility() || one.closest(".visually-hidden, .skip, dialog, noscript")) continue;
        const [high, low] = [light(rgb(getComputedStyle(one).color)), light(ground(one))].sort((a, b) => b - a);
        if ((high + 0.05) / (low + 0.05) < 4.5) found.push(one.className + ": " + one.textContent.slice(0, 40));
    }
    return found;
}
