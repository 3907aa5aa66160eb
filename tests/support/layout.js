// What is wrong with the layout of the page as it stands: sideways scrolling, texts cut off or on top of one another.
() => {
    const width = document.documentElement.clientWidth;
    const faults = [];
    if (document.documentElement.scrollWidth > width) faults.push(`the page is ${document.documentElement.scrollWidth} px wide in a window of ${width}`);
    const name = (one) => `${one.tagName.toLowerCase()}${one.id ? "#" + one.id : ""}${[...one.classList].map((part) => "." + part).join("")}`;
    const clips = (style) => /hidden|clip|auto|scroll/.test(style.overflowX + style.overflowY);
    const texts = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, owner = node.parentElement;
        if (!node.textContent.trim() || owner.closest("script, style, noscript, .visually-hidden, .skip, option, datalist, dialog:not([open])")) continue;
        if (!owner.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        for (let rect of range.getClientRects()) {
            // The box of a line is higher than its letters: leave out what lies above and below them.
            const box = { left: rect.left, right: rect.right, top: rect.top + 0.28 * rect.height, bottom: rect.bottom - 0.28 * rect.height };
            if (box.right - box.left < 2) continue;
            let scrolls = false, cut = null, layer = null;
            for (let at = owner; at && at !== document.body; at = at.parentElement) {
                const style = getComputedStyle(at);
                if (style.position === "fixed") scrolls = true;
                // What sticks to an edge, and a dialog, lies over the rest of the page.
                if (!layer && (/fixed|sticky/.test(style.position) || at.tagName === "DIALOG")) layer = at.closest("table") ?? at;
                if (!clips(style)) continue;
                const frame = at.getBoundingClientRect();
                if (/auto|scroll/.test(style.overflowX + style.overflowY)) scrolls = true;
                // What ends in an ellipsis is meant to be cut.
                else if (box.top >= frame.bottom || box.left >= frame.right) scrolls = true; // meant to be out of sight
                else if (style.textOverflow !== "ellipsis" && style.webkitLineClamp === "none" && !scrolls && (box.right > frame.right + 1.5 || box.left < frame.left - 1.5 || box.top < frame.top - 1.5 || box.bottom > frame.bottom + 1.5)) cut = at;
                box.left = Math.max(box.left, frame.left); box.right = Math.min(box.right, frame.right);
                box.top = Math.max(box.top, frame.top); box.bottom = Math.min(box.bottom, frame.bottom);
            }
            const said = `${name(owner)} “${node.textContent.trim().slice(0, 30)}”`;
            if (cut) faults.push(`${said} is cut off by ${name(cut)}`);
            if (!scrolls && (box.right > width + 1 || box.left < -1)) faults.push(`${said} sticks out of the window`);
            if (box.right - box.left > 1 && box.bottom - box.top > 1) texts.push({ ...box, said, owner, layer });
        }
    }
    texts.sort((a, b) => a.top - b.top);
    texts.forEach((one, at) => {
        for (let next = at + 1; next < texts.length && texts[next].top < one.bottom - 1.5; next++) {
            const other = texts[next];
            if (one.layer !== other.layer || one.owner === other.owner) continue;
            if (Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1.5) faults.push(`${one.said} lies over ${other.said}`);
        }
    });
    const controls = [...document.querySelectorAll("button, input:not([type=file]), select")].filter((one) => one.checkVisibility() && !one.closest(".visually-hidden, dialog:not([open])"));
    for (const one of controls) {
        let scrolls = false;
        for (let at = one.parentElement; at; at = at.parentElement) if (/auto|scroll/.test(getComputedStyle(at).overflowX)) scrolls = true;
        const box = one.getBoundingClientRect();
        if (!scrolls && (box.right > width + 1 || box.left < -1)) faults.push(`${name(one)} sticks out of the window`);
    }
    return [...new Set(faults)];
}
